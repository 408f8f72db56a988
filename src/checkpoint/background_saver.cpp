#include "checkpoint/background_saver.h"

#include <chrono>
#include <cstring>
#include <exception>

namespace trifold {

BackgroundSaver::BackgroundSaver(Communicator& world)
    : world_(world.split(0, world.rank())), exceptions_(std::uncaught_exceptions()) {}

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

std::vector<NamedTensor> BackgroundSaver::copy(std::span<const NamedTensor> mine, const MeshCoords& coords) {
  std::vector<NamedTensor> boxes = owned_boxes(mine, coords);
  constexpr size_t kAlign = 64;
  const auto room = [](const NamedTensor& box) { return (box.data.bytes() + kAlign - 1) / kAlign * kAlign; };
  size_t bytes = 0;
  for (const NamedTensor& box : boxes) bytes += room(box);
  if (memory_.bytes() < bytes) memory_ = Buffer(bytes);
  std::byte* to = memory_.data();
  for (NamedTensor& box : boxes) {
    std::memcpy(to, box.data.data, box.data.bytes());
    box.data.data = to;
    to += room(box);
  }
  return boxes;
}

void BackgroundSaver::start(const std::filesystem::path& root, const CheckpointMeta& meta,
                            std::span<const NamedTensor> mine, const MeshCoords& coords,
                            const SaveOptions& options) {
  check(!result_.valid(), "a checkpoint is still being saved");
  std::vector<NamedTensor> boxes = copy(mine, coords);
  result_ = std::async(std::launch::async, [this, root, meta, boxes = std::move(boxes), coords, options] {
    return save_checkpoint(root, meta, boxes, *world_, coords, options);
  });
}

}  // namespace trifold
