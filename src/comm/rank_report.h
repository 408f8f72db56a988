// RankReport: what one rank of a world does, as the message of a time-out tells it for all of them.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace trifold {

struct RankReport {
  int rank = 0;         // of the world
  std::string where;    // "host a, pid 12"
  bool answers = true;  // false: it could not even be asked, it is stopped, dead or cut off
  // True when the rank waits for others. One that does not is the one that others wait for.
  bool waits = false;
  std::string doing;  // what it waits for, each with the time; or its last call
};

// Says what `doing` is: how long a wait has taken, or how long ago a call was.
std::string waiting_text(const std::string& what, double seconds);
std::string idle_text(const std::string& last_call, double seconds);

// One line for each rank; first those that wait for nobody.
std::string rank_table(std::vector<RankReport> reports);

// The message of rank `teller`, which gave up in `what`: who did not come, then the table.
std::string time_out_text(const std::vector<RankReport>& reports, int teller,
                          std::chrono::milliseconds timeout, const std::string& what);

// "host a, pid 12" of this process.
std::string this_process();

}  // namespace trifold
