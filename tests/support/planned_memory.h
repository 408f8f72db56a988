// Compares the memory and the traffic that a plan forecasts for a run with what the run's ranks report.
#pragma once

#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "config/commands/validate.h"
#include "core/function_ref.h"
#include "support/plans.h"
#include "support/ranks.h"
#include "support/training.h"

namespace trifold::test {

inline PlanReport plan_of(const PretrainConfig& config) {
  PlanConfig plan;
  plan.run = config;
  return report_of(resolve(plan));
}

using CheckOfRank = FunctionRef<void(Trainer& trainer, const MemoryReport& planned)>;

// Trains a step, then calls `check` on every rank, with the memory that `report` forecasts for its pipeline stages.
// Returns the bytes that each rank has sent over these axes.
inline std::vector<double> sent_in_a_step(const PretrainConfig& config, const PlanReport& report,
                                          AxisSet axes, CheckOfRank check) {
  const std::unique_ptr<DataSource> data = few_tokens(config.model);
  std::mutex mutex;
  std::vector<double> sent;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, *data, nullptr);
    const Mesh& mesh = trainer.replica().mesh();
    const Communicator& ranks = mesh.comm(axes);
    const int64_t before = ranks.bytes_sent();
    trainer.step();
    check(trainer, report.memory[static_cast<size_t>(mesh.coord(Axis::Pp))]);
    const std::lock_guard lock(mutex);
    sent.push_back(static_cast<double>(ranks.bytes_sent() - before));
  });
  return sent;
}

inline void compare_with_plan(const PretrainConfig& config, CheckOfRank check) {
  sent_in_a_step(config, plan_of(config), {Axis::Pp}, check);
}

// Expects the planned bytes of every kind of memory.
inline constexpr auto expect_planned_memory = [](Trainer& trainer, const MemoryReport& planned) {
  const MemoryReport memory = trainer.memory();
  EXPECT_EQ(memory.predicted_activations, planned.predicted_activations);
  EXPECT_EQ(memory.parameters, planned.parameters);
  EXPECT_EQ(memory.gradients, planned.gradients);
  EXPECT_EQ(memory.optimizer, planned.optimizer);
};

// The planned bytes of activations of a run with one stage; also checks that every rank has them.
inline size_t planned_activations(const PretrainConfig& config) {
  compare_with_plan(config, [](Trainer& trainer, const MemoryReport& planned) {
    EXPECT_EQ(trainer.memory().predicted_activations, planned.predicted_activations);
  });
  return plan_of(config).memory[0].predicted_activations;
}

}  // namespace trifold::test
