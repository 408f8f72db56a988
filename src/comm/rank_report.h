// RankReport: what one rank of a world is doing; the message of a time-out has one report for each rank.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/flight/flight_recorder.h"
#include "core/host_thread.h"

namespace trifold {

struct RankReport {
  int rank = 0;         // world rank
  std::string where;    // "host a, pid 12"
  bool answers = true;  // false: the rank did not reply, because it is stopped, dead or cut off
  // Whether the rank waits for others. If not, or if its thread is stopped in a wait, it is a straggler that others
  // wait for.
  bool waits = false;
  std::string doing;  // its waits, each with its duration; or its last call
  // Whether its thread, or its background saver, waits for the disk or for data (core/host_thread.h).
  bool outside = false;
  bool saver_outside = false;
  std::string place = {};  // its place in the run: "step 12, 0B1"; empty: unknown
  // Seconds since the rank last began or ended an event (core/flight/flight_recorder.h), or, if it does not answer,
  // since its process last sent a heartbeat.
  std::optional<double> last_sign = {};
};

// A wait for ranks that are blocked by the disk or by data may take up to this many times the time-out.
constexpr int kOutsideTimeouts = 6;

// Adds what `thread` is waiting for outside of the run.
void add_outside(RankReport& report, const HostThread& thread);

// Adds the rank's place in its run.
void add_place(RankReport& report, const FlightRecorder& recorder);

// Whether a wait that timed out is due to something outside of the run, the disk or data: all ranks answer, and the
// stragglers, of which there is at least one, wait for that. For a wait of the background saver (`of_saver`) only savers
// matter: the saver of some rank must be waiting for the disk.
bool waits_outside(const std::vector<RankReport>& reports, bool of_saver);

// Texts for `doing`: the seconds of a wait, the seconds that the thread of a wait has been stopped, or the seconds
// since the last call.
std::string waiting_text(const std::string& what, double seconds);
std::string stopped_text(const std::string& what, double seconds);
std::string idle_text(const std::string& last_call, double seconds);

// One line for each rank, stragglers first.
std::string rank_table(std::vector<RankReport> reports);

// The message of rank `teller`, whose wait in `what` timed out: the missing ranks, then the table.
// `outside`: it has waited kOutsideTimeouts times `timeout` for ranks that wait for the disk or for data.
std::string time_out_text(const std::vector<RankReport>& reports, int teller,
                          std::chrono::milliseconds timeout, const std::string& what, bool outside = false);

// "host a, pid 12", for this process.
std::string this_process();

}  // namespace trifold
