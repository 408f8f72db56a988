// A run on a machine whose nodes fail, simulated many times (Monte Carlo). It knows what the closed form does not: an
// end, spare nodes that run out, repairs, and a run that continues on fewer replicas.
//
// Each node that computes fails after an exponentially distributed time, independently of the others. After a failure
// the run continues from its last complete checkpoint, once the failure is noticed and the ranks are started again: on
// the whole mesh if enough nodes are intact, spares included; else on the largest smaller mesh for which they suffice,
// or, if it waits, when a node is repaired. When repairs allow a larger mesh, the run stops after its next complete
// save and starts again on that; steps computed while a background save is written are dropped, and count as
// `saving`. Spare nodes do not fail while they are idle, and a node that
// fails while another failure is being noticed counts with it.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/goodput/save_interval.h"

namespace trifold {

// A mesh on which the run can be executed.
struct MeshOfNodes {
  int64_t nodes = 1;
  double step = 0;  // seconds
};

struct FailingRun {
  SaveCosts costs;  // costs.step is that of the first mesh
  // The whole mesh, and smaller ones with fewer nodes each, on which the run may continue. With only one it waits.
  std::vector<MeshOfNodes> meshes;
  int64_t steps = 0;     // the run has so many
  int64_t interval = 1;  // steps between saves; the last step is saved too
  double node_mtbf = 0;  // seconds; may be infinite
  int64_t spares = 0;    // nodes that the whole mesh does not use
  double repair = 0;     // seconds until a broken node is intact
};

// Seconds of a run by cause. `work` is the time of its steps on the whole mesh without failures and saves; the other
// parts are what it takes longer.
struct RunSeconds {
  double work = 0;
  double saving = 0;   // waits for saves
  double lost = 0;     // steps, and saves, that a failure destroyed
  double down = 0;     // failures being noticed, and restarts
  double waiting = 0;  // for repairs
  double slower = 0;   // steps on smaller meshes take longer

  double all() const { return work + saving + lost + down + waiting + slower; }
  double goodput() const { return all() > 0 ? work / all() : 1; }
};

struct RunOutcome {
  RunSeconds seconds;
  int64_t failures = 0;
  // false: given up after 20 times the sum of its work, a repair, the delay of a notice and a restart, or after
  // kMostFailures
  bool ended = true;
};

constexpr int64_t kMostFailures = 1'000'000;

// The run with the failures of trial `trial`, which depend on `seed` alone: the same for every interval.
RunOutcome simulate_failures(const FailingRun& run, uint64_t seed, int64_t trial);

// Means over trials, and the shortest and longest runs but for a twentieth of them at either end. The first trial that
// does not end ends the forecast. So does the one that brings the failures of all trials to kMostFailures, because means
// over so many do not change with more.
struct RunForecast {
  RunSeconds seconds;
  double failures = 0;
  double low_seconds = 0, high_seconds = 0;
  int64_t trials = 0;  // that were simulated
  bool ended = true;
};
// A run that ends is better than one that does not, and otherwise the higher goodput.
bool is_worse(const RunForecast& a, const RunForecast& b);
RunForecast forecast_failures(const FailingRun& run, uint64_t seed, int64_t trials);

}  // namespace trifold
