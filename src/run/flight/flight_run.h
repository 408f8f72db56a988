// FlightRun keeps the flight recorders of this process's ranks: it makes them, records heartbeats, and prints what all
// ranks are doing when the user asks for it (SIGQUIT).
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "core/flight/flight_recorder.h"

namespace trifold {

// Incremented by the handler of SIGQUIT.
std::atomic<unsigned>& status_requests();

// The folder in which the ranks of one run keep their files, below the folder `root` of --flight-dir: named after the
// time at which the run began, so that a restarted run leaves the files of the one before it alone.
std::string new_flight_folder(const std::string& root);
// The name of a rank's file: "rank_00003.flight".
std::string flight_file_name(int rank);

class FlightRun {
 public:
  // `status` returns the report of all ranks (Communicator::status), which goes to `say`; null: nothing is printed.
  FlightRun(std::function<std::string()> status, void (*say)(const std::string& text));
  ~FlightRun();
  FlightRun(const FlightRun&) = delete;
  FlightRun& operator=(const FlightRun&) = delete;

  // Makes the recorder of the calling rank, with a file if `folder` (--flight-dir) is given, and lets `world` record in
  // it. Collective. An Error on all ranks if one of them cannot create its file.
  std::shared_ptr<FlightRecorder> start(Communicator& world, const std::optional<std::string>& folder);

 private:
  void watch();

  std::function<std::string()> status_;
  void (*say_)(const std::string& text);
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<FlightRecorder>> recorders_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace trifold
