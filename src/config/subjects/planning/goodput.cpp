#include "config/subjects/planning/goodput.h"

#include "config/options/bounds.h"

namespace trifold {

namespace {

constexpr const char* kNoFailures = "because no failures are forecast";

void add_saves(OptionTable& table, GoodputConfig& goodput) {
  table
      .add("save-seconds", &goodput.save_seconds,
           "Seconds to write a checkpoint: training waits for it, or with --async-save for "
           "--save-stall-seconds alone.")
      .range(0, kMostGoodputSeconds)
      .absent("the bytes of a checkpoint at --storage-gbps")
      .excludes("storage-gbps", "from which it is computed", "give one of them")
      .only_with("mtbf", kNoFailures);
  table
      .add("storage-gbps", &goodput.storage_gbps,
           "GB/s (1e9 bytes) at which all ranks together write a checkpoint.")
      .positive()
      .absent("none")
      .only_with("mtbf", kNoFailures);
  table
      .add("save-stall-seconds", &goodput.save_stall_seconds,
           "Seconds that training waits for the copy of the state that --async-save makes.")
      .range(0, kMostGoodputSeconds)
      .absent("the state of the rank with most at 10 GB/s")
      .only_with("mtbf", kNoFailures)
      .only_with("async-save", "because training waits for the whole save");
}

}  // namespace

void add_goodput(OptionTable& table, GoodputConfig& goodput) {
  table.group("Failures");
  table
      .add(
          "mtbf", &goodput.mtbf,
          "Mean hours between failures of one node, whatever in it ends the run (a device, the host, its network): "
          "forecast the share of the time that goes into the run's steps, by save interval. A machine of N nodes "
          "fails N times as often.")
      .range(0.001, 1e9)
      .absent("no failures are forecast")
      .needs(When("save-seconds").or_when("storage-gbps"), "to know how long a save takes")
      .needs(When("hardware").or_when("ranks-per-node"), "to know how many ranks share a node")
      .no_effect_with("search", {}, "plan the layout found, with the options that the search prints");
  add_saves(table, goodput);
  table
      .add(
          "restart-seconds", &goodput.restart_seconds,
          "Seconds from a noticed failure until the run computes again: replacing the node, starting the ranks, "
          "loading the checkpoint.")
      .range(0, kMostGoodputSeconds)
      .only_with("mtbf", kNoFailures);
  table.add("detect-seconds", &goodput.detect_seconds, "Seconds from a failure until it is noticed.")
      .range(0, kMostGoodputSeconds)
      .absent("the run's time-out: --timeout-factor steps, at least --timeout-floor-seconds")
      .only_with("mtbf", kNoFailures);
  table
      .add("spare-nodes", &goodput.spare_nodes,
           "Nodes kept besides those of --ranks, one of which replaces a broken one.")
      .range(0, kMaxRanks)
      .only_with("mtbf", kNoFailures);
  table.add("repair-hours", &goodput.repair_hours, "Hours until a broken node can be used again.")
      .range(0, 1e6)
      .only_with("mtbf", kNoFailures);
  table
      .add("goodput-trials", &goodput.goodput_trials,
           "Simulated runs over which the forecast averages; their failures follow from --seed.")
      .range(1, 1'000'000)
      .only_with("mtbf", kNoFailures);
}

}  // namespace trifold
