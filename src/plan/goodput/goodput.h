// The goodput of a planned run on a machine whose nodes fail (`trifold plan --mtbf`): the share of its time that goes
// into steps which count, by the interval between saves. The unit of work is the planned step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "config/fields/config.h"
#include "plan/goodput/checkpoint_bytes.h"
#include "plan/goodput/failing_run.h"
#include "plan/planned_run.h"
#include "plan/report.h"

namespace trifold {

// A mesh with fewer replicas, on which the run can continue.
struct SmallerMesh {
  int data = 1;  // data-parallel ranks; a recommender's are all of its ranks
  MeshOfNodes mesh;
};

struct GoodputRow {
  int64_t interval = 1;           // steps between saves
  bool is_save_interval = false;  // it is the --save-interval of the run
  double steady = 0;              // in closed form, with spares for all failures
  RunForecast waiting;            // waits for repairs when no spare is left
  RunForecast shrinking;          // continues on smaller meshes instead; as `waiting` if there are none

  const RunForecast& best() const { return is_worse(waiting, shrinking) ? shrinking : waiting; }
};

struct GoodputReport {
  int64_t nodes = 1;
  int64_t ranks_per_node = 1;
  double mtbf = 0;  // seconds between failures of the whole machine
  CheckpointBytes checkpoint;
  SaveCosts costs;
  int64_t steps = 0;                 // that are simulated
  bool steps_are_given = false;      // else as many as 30 days without failures have
  std::optional<int64_t> epochs;     // as in PlannedTraining
  double young = 0, daly = 0;        // seconds of work between saves
  std::vector<SmallerMesh> smaller;  // the largest first, each on fewer nodes than the one before
  std::vector<GoodputRow> rows;      // by interval
  size_t best = 0;                   // the row of the highest goodput; if it did not end, no row did
};

// A planned run, of any kind.
struct PlannedTraining {
  double step = 0;                // seconds
  int64_t steps = 0;              // 0: unknown
  std::optional<int64_t> epochs;  // passes over data that a plan does not read, so that its steps are unknown
  int64_t ranks = 1, ranks_per_node = 1;
  CheckpointBytes checkpoint;
  bool saves_in_background = false;
  std::optional<int64_t> save_interval;
  double timeout = 0;                // seconds after which a rank that does not answer is noticed
  uint64_t seed = 0;                 // for the failures
  std::vector<SmallerMesh> smaller;  // the largest first
};

// `config` must have --mtbf.
GoodputReport make_goodput(const GoodputConfig& config, const PlannedTraining& training);

// PlannedTraining::timeout for steps of `step` seconds (run/flight/wait_limits.h).
double planned_timeout(const MeshConfig& mesh, const WatchConfig& watch, double step);

// The forecast for the run of `config`, which must be resolved and have --mtbf. `planned` is its plan and
// `step_seconds` its planned step. BadInput if nothing says how many ranks share a node.
GoodputReport make_goodput(const PlanConfig& config, const PlannedRun& planned, const PlannedMachine& machine,
                           double step_seconds);

}  // namespace trifold
