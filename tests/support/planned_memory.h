// The memory that a plan states for a run, compared with what the run's ranks have.
#pragma once

#include <gtest/gtest.h>

#include "config/rules/validate.h"
#include "plan/report.h"
#include "support/ranks.h"
#include "support/training.h"

namespace trifold::test {

// The bytes of activations that a plan states for the first stage of a run with one stage. Trains a step, and expects
// every rank to have as many.
inline size_t planned_activations(const PretrainConfig& config) {
  PlanConfig plan;
  plan.run = config;
  const size_t planned = make_plan_report(resolve(plan)).memory[0].predicted_activations;
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, nullptr);
    trainer.step();
    EXPECT_EQ(trainer.memory().predicted_activations, planned);
  });
  return planned;
}

}  // namespace trifold::test
