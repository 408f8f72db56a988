// The step of a whole mesh, simulated with the times that rehearsed ranks measured.
//
// A stage that was rehearsed costs what its actions took. A stage that was not costs what the rehearsed stage most like
// it took, scaled by what the plan says of both. "Like" is, in this order: the same kinds of blocks, the same kinds of
// layers, any; the nearest of several. Each part of a step (F, I, W, B, STEP) is scaled alone.
//
// A rank without peers waits for nobody, so the times of collectives are the plan's: they are added to what was
// measured, unless the ranks waited for them (--wait planned), and so are messages between stages and reductions.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "plan/planned_run.h"
#include "plan/report.h"
#include "rehearse/rehearsed_rank.h"

namespace trifold {

// Where the times of a stage come from.
struct StageSource {
  int rank = 0;         // the rank that was rehearsed
  int stage = 0;        // the stage it measured
  bool scaled = false;  // the measured stage is another one
  bool operator==(const StageSource&) const = default;
};

struct RehearsedStep {
  std::vector<StageSource> sources;  // [stage]
  double seconds = 0;                // seconds of a step of the whole mesh
  double bubble = 0;
  double tokens_per_second = 0;
  double mfu = 0;  // against the peak rate of the plan
};

// Seconds of the parts of a stage for one micro-batch, and of its update; absent: not measured.
struct StageTimes {
  std::optional<double> f, i, w, b, step;
};

// What `rank` measured of a stage of `blocks` blocks.
StageTimes measured_times(const RehearsedRank& rank, int stage, int blocks);

// Seconds that the plan gives `action`, or the mean block of its stage if it is on one block: with the collectives in it
// if `waited`. nullopt for actions that only start other work.
std::optional<double> planned_seconds(const PlannedRun& planned, const PlanReport& report,
                                      const MeasuredAction& action, bool waited);

// The simulation of the run that `planned` and `report` describe. `waited`: the ranks waited for collectives. nullopt if
// no forward was measured.
std::optional<RehearsedStep> simulate_rehearsed(const PlannedRun& planned, const PlanReport& report,
                                                std::span<const RehearsedRank> ranks, bool waited);

}  // namespace trifold
