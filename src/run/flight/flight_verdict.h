// Reads the files that the flight recorders of a run have left, and finds the rank for which the others waited.
//
// Ranks call the collectives of a communicator in the same order, and messages between two ranks match in order, so
// that a call is identified by the communicator and a number that each rank counts for itself. A rank waits if it has
// begun a call and not ended it; it waits for the ranks of the call that have not begun it. The first rank that never
// came is one that others wait for while it waits for nobody: if it failed, everything else follows. If every rank that
// others wait for waits itself, it is the only one whose thread that runs the plan is in no call, so that only other
// threads of it wait; nobody, if several are such, for a thread also waits for another one of its rank. Ranks that
// never came are listed by what is known of them: first ranks whose files show that they have not begun the call, then
// ranks that have begun it but whose heartbeats ended seconds before the others of their host, then ranks without a
// file; in each of these sets by the time at which the first rank waited for them.
#pragma once

#include <string>
#include <vector>

#include "core/flight/flight_recorder.h"

namespace trifold {

// The logs of a run, by rank.
struct FlightFiles {
  std::string folder;
  std::vector<FlightLog> logs;        // ascending ranks
  std::vector<std::string> problems;  // files that cannot be read, a line each
};

// Reads the files in `folder`, or, if it has none, in the newest run's folder in it. BadInput if there is none.
FlightFiles read_flight_files(const std::string& folder);

// What a rank was doing at the end.
struct RankAtEnd {
  int rank = 0;
  bool has_file = true;
  std::vector<int> waits_for;  // ranks
  bool waits = false;          // it had begun a call, and not ended it
};

struct FlightVerdict {
  std::string text;  // a sentence or two
  std::vector<int>
      never_came;  // the ranks that others wait for while they wait for nobody, first to be missed first
  std::vector<RankAtEnd> ranks;  // every rank of the run
};

FlightVerdict judge(const FlightFiles& files);

// The verdict, and one line for each rank: host, step, action, call, its number and duration, heartbeat.
std::string flight_report(const FlightFiles& files);

}  // namespace trifold
