// Runs that tests of ZeRO share.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "support/compare.h"
#include "support/training.h"

namespace trifold::test {

struct ZeroCase {
  std::string schedule;
  int dp, tp, pp, chunks;
  bool sequence_parallel;
};

inline PretrainConfig zero_run(const ZeroCase& c, int stage, bool f64 = false) {
  PretrainConfig config = scheduled(on_mesh(small_run(), c.dp, c.tp, c.pp), c.schedule, c.chunks);
  config.model.num_layers = 4;
  config.model.hidden_dropout = 0.1;
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = 8 * c.dp / 2;
  config.mesh.sequence_parallel = c.sequence_parallel;
  config.precision.f64 = f64;
  config.zero.zero_stage = stage;
  config.zero.zero_min_unit_params = 4000;  // several units in a model this small
  return config;
}

// Gradients reduced after each micro-batch.
inline PretrainConfig each_run(const ZeroCase& c, int stage, int micros, bool f64 = false) {
  PretrainConfig config = zero_run(c, stage, f64);
  config.batch.global_batch_size = int64_t{micros} * c.dp;
  if (stage >= 2) config.zero.zero_reduce = ReducePolicy::Each;
  return config;
}

inline void expect_same_bits(const Curve& a, const Curve& b) {
  ASSERT_FALSE(a.losses.empty());
  EXPECT_EQ(first_difference(std::span<const double>(a.losses), std::span<const double>(b.losses)), kSame);
  EXPECT_EQ(first_difference(std::span<const double>(a.grad_norms), std::span<const double>(b.grad_norms)),
            kSame);
}

}  // namespace trifold::test
