// RankReport: what one rank of a world does, as the message of a time-out tells it for all of them.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "core/host_thread.h"

namespace trifold {

struct RankReport {
  int rank = 0;         // of the world
  std::string where;    // "host a, pid 12"
  bool answers = true;  // false: it could not even be asked, it is stopped, dead or cut off
  // True when the rank waits for others. One that does not is the one that others wait for.
  bool waits = false;
  std::string doing;  // what it waits for, each with the time; or its last call
  // The disk writes for its thread, or for the one that saves in the background.
  bool on_disk = false;
  bool saver_on_disk = false;
};

// A wait for ranks that wait for the disk may take so many times as long as any other.
constexpr int kDiskTimeouts = 6;

// Adds what `thread` waits for the disk to write.
void add_disk(RankReport& report, const HostThread& thread);

// Whether a wait that has taken too long is for the disk: all ranks answer, and each that waits for no other
// rank, at least one, waits for the disk. For one of the thread that saves in the background (`of_saver`) the
// other threads of the ranks do not matter: some rank's saver must wait for the disk.
bool waits_for_disk(const std::vector<RankReport>& reports, bool of_saver);

// Says what `doing` is: how long a wait has taken, or how long ago a call was.
std::string waiting_text(const std::string& what, double seconds);
std::string idle_text(const std::string& last_call, double seconds);

// One line for each rank; first those that wait for nobody.
std::string rank_table(std::vector<RankReport> reports);

// The message of rank `teller`, which gave up in `what`: who did not come, then the table. `for_disk`: it has
// waited for kDiskTimeouts times `timeout`, for ranks that wait for the disk.
std::string time_out_text(const std::vector<RankReport>& reports, int teller,
                          std::chrono::milliseconds timeout, const std::string& what, bool for_disk = false);

// "host a, pid 12" of this process.
std::string this_process();

}  // namespace trifold
