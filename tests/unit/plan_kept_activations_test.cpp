// What other programs keep in memory, against published formulas and measurements.
#include "plan/forecast/kept_activations.h"

#include <gtest/gtest.h>

#include <string>

#include "config/commands/validate.h"
#include "core/error.h"
#include "plan/layout_memory.h"
#include "support/planned_runs.h"
#include "support/plans.h"

namespace trifold::test {
namespace {

// Width 1024, 16 heads, inner width 4096, one micro-batch of 1024 tokens in 16 bits.
Workload layer_of(double tensor, bool sequence_parallel) {
  Workload work;
  work.layers = 8;
  work.hidden = 1024;
  work.heads = work.key_heads = 16;
  work.head_width = 64;
  work.inner = 4096;
  work.hidden_dropout = work.attention_dropout = true;
  work.sequence = 1024;
  work.vocabulary = 32000;
  work.tensor = tensor;
  work.sequence_parallel = sequence_parallel;
  return work;
}

double over_sbh(double bytes) { return bytes / (1024 * 1024); }

// Table 2 of arXiv 2205.05198, with 5 a s / h = 80 for the scores.
TEST(KeptActivations, OfFusedKernelsAreThoseOfTheFormula) {
  Software software;
  software.activations = KeptActivations::Fused;
  software.attention = AttentionKernel::Unfused;
  const auto layer = [&](const Workload& work) { return over_sbh(kept_bytes(software, work).layer); };
  EXPECT_DOUBLE_EQ(layer(layer_of(1, false)), 34 + 80);
  EXPECT_DOUBLE_EQ(layer(layer_of(4, false)), 10 + 24 / 4.0 + 80 / 4.0);
  EXPECT_DOUBLE_EQ(layer(layer_of(4, true)), 34 / 4.0 + 80 / 4.0);
  Workload work = layer_of(4, true);
  work.recompute = RecomputeGranularity::Selective;
  EXPECT_DOUBLE_EQ(layer(work), 34 / 4.0);
  work.recompute = RecomputeGranularity::Full;
  EXPECT_DOUBLE_EQ(layer(work), 2 / 4.0);
  software.recompute_fraction = 0.5;
  EXPECT_DOUBLE_EQ(layer(work), (2 / 4.0 + 34 / 4.0 + 80 / 4.0) / 2);
}

// Llama 3 8B: width 4096, 32 query and 8 key heads of 128, inner width 14336.
Workload llama() {
  Workload work;
  work.layers = 32;
  work.hidden = 4096;
  work.heads = 32;
  work.key_heads = 8;
  work.head_width = 128;
  work.inner = 14336;
  work.gated = work.rms_norm = true;
  work.sequence = 8192;
  work.vocabulary = 128256;
  work.tied = false;
  return work;
}

TEST(KeptActivations, OfSingleOperationsAreWhatAutogradSaves) {
  constexpr double kH = 4096, kF = 14336, kK = 1024, kSums = 4 * 32;
  const Workload work = llama();
  const auto of_token = [&](const Software& software, const Workload& of) {
    return kept_bytes(software, of).layer / 8192;
  };
  Software software;
  software.activations = KeptActivations::Eager;
  // Two norms: a copy in f32, normalized rows, and the products' input; queries, repeated keys and values, the output;
  // gate, up, activated gate and their product.
  EXPECT_DOUBLE_EQ(of_token(software, work), 2 * (4 + 2 + 2) * kH + 4 * 2 * kH + kSums + 4 * 2 * kF);
  software.fused_norms = true;
  EXPECT_DOUBLE_EQ(of_token(software, work), 2 * (2 + 2) * kH + 4 * 2 * kH + kSums + 4 * 2 * kF);
  software.activations = KeptActivations::Compiled;
  EXPECT_DOUBLE_EQ(of_token(software, work), 2 * 2 * kH + 2 * (2 * kH + 2 * kK) + kSums + 2 * 2 * kF);
  software.activations = KeptActivations::Fused;
  software.input_bytes = 1;
  EXPECT_DOUBLE_EQ(of_token(software, work),
                   2 * (2 + 1) * kH + 2 * (2 * kH + 2 * kK) + kSums + kH + (2 * 2 + 1) * kF);
}

// Every second of q, k, v, output, gate, up and down is computed again.
TEST(KeptActivations, OfRecomputedProductsAreTheOthersOutputs) {
  constexpr double kH = 4096, kF = 14336, kK = 1024, kSums = 4 * 32;
  Software software;
  software.activations = KeptActivations::Eager;
  software.recompute_products = true;
  software.recompute_fraction = 0.5;
  Workload work = llama();
  work.recompute = RecomputeGranularity::Full;
  EXPECT_DOUBLE_EQ(kept_bytes(software, work).layer / 8192,
                   2 * kH + 2 * kH + kSums + 2 * (kH + kK + kF + kH));
}

TEST(KeptActivations, WhatIsNotDescribedIsRefused) {
  Software software;
  EXPECT_THROW(kept_bytes(software, llama()), Error);
  software.input_bytes = 1;
  EXPECT_THROW(check_memory_keys(software), Error);
  software.activations = KeptActivations::Fused;
  check_memory_keys(software);
  Workload mixture = llama();
  mixture.experts = 8;
  EXPECT_THROW(kept_bytes(software, mixture), Error);
  EXPECT_THROW(set_value(software, "activations=lazy"), Error);
}

// The run of 6.2 billion parameters of arXiv 2401.10241, table 4, which measured these GiB.
PlanConfig zero_bubble_run(Schedule schedule, int chunks) {
  PlanConfig plan;
  PretrainConfig& run = plan.run;
  run = gpt_of({30, 4096, 32, 1024, 51200}, 8);
  run.model.hidden_dropout = run.model.attention_dropout = 0.1;
  run.precision.bf16 = true;
  run.mesh.pipeline_model_parallel_size = 8;
  run.mesh.cut.account_for_embedding_in_pipeline_split = true;
  run.mesh.cut.account_for_loss_in_pipeline_split = true;
  run.pipeline.schedule = schedule;
  if (chunks > 1) run.pipeline.num_virtual_stages_per_pipeline_rank = chunks;
  run.batch.micro_batch_size = 3;
  run.batch.global_batch_size = 72;
  plan.hardware = "a100-80gb";
  plan.assume = {"attention=unfused", "activations=fused"};
  return resolve(plan);
}

TEST(KeptActivations, MemoryOfMeasuredRunsIsPredicted) {
  struct Measured {
    Schedule schedule;
    int chunks;
    double gib;
  };
  for (const Measured& run : {Measured{Schedule::OneFOneB, 1, 39}, Measured{Schedule::Interleaved, 4, 48},
                              Measured{Schedule::ZbH1, 1, 42}, Measured{Schedule::ZbH2, 1, 70}}) {
    const PlanOutcome outcome = outcome_of(zero_bubble_run(run.schedule, run.chunks));
    const double planned = static_cast<double>(outcome.most_bytes()) / (int64_t{1} << 30);
    EXPECT_NEAR(planned / run.gib, 1, 0.12) << schedule_name(run.schedule);
  }
}

}  // namespace
}  // namespace trifold::test
