// Incidents of a run as texts and as values for programs (run/metrics.h).
#pragma once

#include <string>

#include "core/function_ref.h"
#include "run/health/loss_watch.h"
#include "run/health/stragglers.h"
#include "run/metrics.h"

namespace trifold {

// "slow_rank", or "recovered_rank".
Incident incident_of(const SlowRank& rank);

// How a run has returned to an earlier step after a spike.
struct Rollback {
  int64_t to_step = 0;  // the run continues after this step
  int64_t first_skipped = 0, last_skipped = 0;
};
// The samples that the first `steps` steps of a run consume.
using SamplesOfSteps = FunctionRef<int64_t(int64_t steps)>;
// "loss_spike"
Incident incident_of(const LossSpike& spike, SamplesOfSteps samples, const Rollback& rollback);

// "step 812: the loss 7.9 is a spike: ..."
std::string text_of(const LossSpike& spike, SamplesOfSteps samples);

}  // namespace trifold
