#include "run/flight/flight_run.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <filesystem>

#include "checkpoint/collective.h"
#include "core/error.h"

namespace trifold {

namespace {

constexpr std::chrono::milliseconds kBeat{200};  // between two heartbeats, and two looks at the signal

void make_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) bad_input("--flight-dir: {} cannot be created: {}", folder.string(), error.message());
}

}  // namespace

std::atomic<unsigned>& status_requests() {
  static std::atomic<unsigned> requests{0};
  return requests;
}

std::string new_flight_folder(const std::string& root) {
  const std::time_t now = std::time(nullptr);
  return (std::filesystem::path(root) / fmt::format("run_{:%Y%m%d_%H%M%S}_{}", fmt::gmtime(now), ::getpid()))
      .string();
}

std::string flight_file_name(int rank) { return fmt::format("rank_{:05}.flight", rank); }

FlightRun::FlightRun(std::function<std::string()> status, void (*say)(const std::string& text))
    : status_(std::move(status)), say_(say), thread_([this] { watch(); }) {}

FlightRun::~FlightRun() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

std::shared_ptr<FlightRecorder> FlightRun::start(Communicator& world,
                                                 const std::optional<std::string>& folder) {
  std::string file;
  if (folder) {
    const auto names = gather_texts(world, "naming the folder of the flight recorder", [&] {
      return world.rank() == 0 ? new_flight_folder(*folder) : std::string();
    });
    file = (std::filesystem::path(names.front()) / flight_file_name(world.rank())).string();
  }
  std::shared_ptr<FlightRecorder> recorder;
  const auto make = [&] {
    if (!file.empty()) make_folder(std::filesystem::path(file).parent_path());
    recorder = std::make_shared<FlightRecorder>(world.rank(), world.size(), file);
    return std::string();
  };
  if (folder)
    gather_texts(world, "creating the files of --flight-dir", make);
  else
    make();
  world.record_in(recorder);
  const std::lock_guard lock(mutex_);
  recorders_.push_back(recorder);
  return recorder;
}

void FlightRun::watch() {
  unsigned seen = status_requests().load();
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, kBeat, [this] { return ending_; })) {
    for (const auto& recorder : recorders_) recorder->beat();
    const unsigned requests = status_requests().load();
    if (requests == seen || say_ == nullptr) continue;
    seen = requests;
    lock.unlock();
    try {
      if (const std::string text = status_(); !text.empty())
        say_(fmt::format("SIGQUIT: what each rank does:\n{}\n", text));
    } catch (const std::exception& error) {
      say_(fmt::format("SIGQUIT: the ranks cannot be asked: {}\n", error.what()));
    }
    lock.lock();
  }
}

}  // namespace trifold
