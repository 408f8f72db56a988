// What the ranks of a run did, and what their plan expected, as tracks of a trace: rows of slices on one time axis.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "monitor/report/planned_step.h"
#include "run/flight/flight_verdict.h"
#include "schedule/simulate.h"

namespace trifold {

struct TraceSlice {
  std::string name;                  // "0F1", "all_reduce"
  std::string category;              // "part", "action", "collective", "send", "receive", "copy"; "planned"
  int64_t begin_ns = 0, end_ns = 0;  // since 1970
  std::vector<std::pair<std::string, int64_t>> notes = {};  // step, bytes, ...
};

// The slices of a track do not overlap and are in order; events that overlap are on further tracks of the same name.
struct TraceTrack {
  int process = 0;           // tracks of one process are shown together
  std::string process_name;  // "rank 0 on host a", "planned rank 0"
  std::string name;
  std::vector<TraceSlice> slices;
};

// The events of every rank. An event without an end lasts until the rank's last sign of life and has the note
// "unfinished".
std::vector<TraceTrack> measured_tracks(const FlightFiles& files);

// The simulated step of every pipeline rank, placed so that it begins with the last whole step of the first rank, or with
// the first event that is known of it if it has ended no step. Empty without a log.
std::vector<TraceTrack> planned_tracks(const Simulation& simulation, const FlightFiles& files);

// Both, or what the ranks did alone if there is no plan.
std::vector<TraceTrack> all_tracks(const FlightFiles& files, const Planned& planned);

}  // namespace trifold
