#include "checkpoint/background_saver.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <utility>

#include "checkpoint/collective.h"
#include "core/flight/recorded_copy.h"
#include "core/host_name.h"
#include "core/host_thread.h"
#include "core/read_json.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr size_t kAlign = 64;

size_t room_of(const NamedTensor& box) { return (box.data.bytes() + kAlign - 1) / kAlign * kAlign; }

size_t mib(size_t bytes) {
  constexpr size_t kMib = size_t{1} << 20;
  return bytes / kMib + (bytes % kMib > 0 ? 1 : 0);
}

// Describes the shortage: the memory that the ranks of each host need together, and the least that any of
// them reports as free.
std::string shortage(const std::vector<std::string>& of_ranks) {
  struct Host {
    size_t need = 0, left = SIZE_MAX;
  };
  std::map<std::string, Host> hosts;
  for (const std::string& text : of_ranks) {
    const json rank = json::parse(text);
    Host& host = hosts[rank[0].get<std::string>()];
    host.need += rank[1].get<size_t>();
    if (const auto left = rank[2].get<size_t>(); left > 0) host.left = std::min(host.left, left);
  }
  for (const auto& [name, host] : hosts)
    if (host.need > host.left)
      return fmt::format("host {} has {} MiB of memory left, and copies of the state would take {} MiB", name,
                         mib(host.left), mib(host.need));
  return {};
}

}  // namespace

BackgroundSaver::BackgroundSaver(Communicator& world, FreeMemory free_memory)
    : world_(world.duplicate()),
      free_memory_(std::move(free_memory)),
      exceptions_(std::uncaught_exceptions()) {
  world_->stop_recording();  // what the saving thread waits for says nothing about the rank
}

BackgroundSaver::~BackgroundSaver() {
  if (!result_.valid()) return;
  if (std::uncaught_exceptions() > exceptions_)
    world_->abort("training failed while a checkpoint was being saved");
  result_.wait();
}

bool BackgroundSaver::is_ready() const {
  return result_.valid() && result_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
}

std::filesystem::path BackgroundSaver::finish() {
  check(result_.valid(), "no checkpoint is being saved in the background");
  return result_.get();
}

// Collective. Makes memory_ as large as `measure` requires on each rank, or returns why that is not possible.
std::string BackgroundSaver::make_room(FunctionRef<size_t()> measure) {
  size_t missing = 0;
  std::string problem = shortage(gather_texts(*world_, "copying the state", [&] {
    const size_t bytes = measure();
    missing = memory_.bytes() < bytes ? bytes : 0;
    return json_text(json{host_name(), missing, free_memory_ ? free_memory_() : 0});
  }));
  if (!problem.empty()) return problem;
  for (const std::string& text : gather_texts(*world_, "copying the state", [&]() -> std::string {
         if (missing == 0) return {};
         try {
           memory_ = Buffer();  // free the old memory before allocating
           memory_ = Buffer(missing);
         } catch (const std::exception& error) {
           return fmt::format("on host {}: {}", host_name(), error.what());
         }
         return {};
       }))
    if (problem.empty()) problem = text;
  return problem;
}

std::vector<NamedTensor> BackgroundSaver::copy(std::vector<NamedTensor> boxes) {
  size_t bytes = 0;
  for (const NamedTensor& box : boxes) bytes += box.data.bytes();
  const RecordedCopy recorded("checkpoint", bytes);
  std::byte* to = memory_.data();
  for (NamedTensor& box : boxes) {
    if (StoredRows* const stored = std::exchange(box.stored, nullptr))
      stored->read(0, box.spec.local.extent[0], to);
    else
      std::memcpy(to, box.data.data, box.data.bytes());
    box.data.data = to;
    to += room_of(box);
  }
  return boxes;
}

std::string BackgroundSaver::start(const std::filesystem::path& root, const CheckpointMeta& meta,
                                   std::span<const NamedTensor> mine, const MeshCoords& coords,
                                   const SaveOptions& options) {
  check(!result_.valid(), "a checkpoint is still being saved");
  std::vector<NamedTensor> boxes;
  std::string problem = make_room([&] {
    boxes = owned_boxes(mine, coords);
    size_t bytes = 0;
    for (const NamedTensor& box : boxes) bytes += room_of(box);
    return bytes;
  });
  const auto save = [this, root, meta, coords, options](std::span<const NamedTensor> saved) {
    return save_checkpoint(root, meta, saved, *world_, coords, options);
  };
  if (problem.empty()) {
    result_ =
        std::async(std::launch::async, [save, copied = copy(std::move(boxes)), rank = HostThread::here()] {
          const SavesFor saves(rank);
          return save(copied);
        });
    return {};
  }
  std::packaged_task<std::filesystem::path()> task([&] { return save(boxes); });
  result_ = task.get_future();
  task();
  return problem;
}

}  // namespace trifold
