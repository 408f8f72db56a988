#include "run/health/incidents.h"

#include <fmt/format.h>

namespace trifold {

namespace {

// "samples 640-703": the samples of steps [first, last].
std::string samples_text(int64_t first, int64_t last, SamplesOfSteps samples) {
  return fmt::format("samples {}-{}", samples(first - 1), samples(last) - 1);
}

}  // namespace

Incident incident_of(const SlowRank& rank) {
  Incident incident{rank.step, rank.is_slow ? "slow_rank" : "recovered_rank", {}, {}};
  const std::string who = fmt::format("rank {} ({})", rank.rank, rank.process);
  const std::string time = fmt::format("{:.1f} ms of its own a step, {:.2f} times what its peers need",
                                       1000 * rank.seconds, rank.times);
  incident.text = rank.is_slow
                      ? fmt::format("step {}: {} is slow: it needs {}", rank.step, who, time)
                      : fmt::format("step {}: {} is no longer slow: it needs {}", rank.step, who, time);
  incident.values = {
      {"rank", rank.rank}, {"process", rank.process}, {"times", rank.times}, {"own_seconds", rank.seconds}};
  return incident;
}

std::string text_of(const LossSpike& spike, SamplesOfSteps samples) {
  return fmt::format(
      "step {}: the loss {:.4f} is a spike: before it was {:.4f}, with a spread of {:.4f} ({})", spike.step,
      spike.loss, spike.usual, spike.spread, samples_text(spike.step, spike.step, samples));
}

Incident incident_of(const LossSpike& spike, SamplesOfSteps samples, const Rollback& rollback) {
  Incident incident{spike.step, "loss_spike", {}, {}};
  incident.text =
      fmt::format("{}. The run continues from the checkpoint of step {} and skips steps {}-{}, {}",
                  text_of(spike, samples), rollback.to_step, rollback.first_skipped, rollback.last_skipped,
                  samples_text(rollback.first_skipped, rollback.last_skipped, samples));
  incident.values = {{"loss", spike.loss},
                     {"usual_loss", spike.usual},
                     {"spread", spike.spread},
                     {"to_step", rollback.to_step},
                     {"first_skipped_step", rollback.first_skipped},
                     {"last_skipped_step", rollback.last_skipped},
                     {"first_skipped_sample", samples(rollback.first_skipped - 1)},
                     {"last_skipped_sample", samples(rollback.last_skipped) - 1}};
  return incident;
}

}  // namespace trifold
