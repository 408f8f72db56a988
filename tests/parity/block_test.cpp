// Norms of outputs, parallel parts, multipliers and soft caps of logits: the same curve on every mesh.
#include <gtest/gtest.h>

#include "support/compare.h"
#include "support/run_mesh.h"
#include "support/training.h"

namespace trifold::test {
namespace {

struct BlockForm {
  NormPosition norms;
  ParallelResidual parallel;
};

PretrainConfig block_run(const BlockForm& form) {
  PretrainConfig config = small_run();
  ModelConfig& model = config.model;
  make_llama(model, 2);
  model.norm_position = form.norms;
  model.parallel_residual = form.parallel;
  model.embedding_multiplier = 4;
  model.residual_multiplier = 0.6;
  model.logits_scaling = 0.5;
  model.softmax_scale = 0.3;
  model.final_logit_softcapping = 3;
  model.apply_layernorm_1p = true;
  model.qk_layernorm = form.norms != NormPosition::Input;
  model.qk_layernorm_across_heads = form.norms == NormPosition::Output;
  model.qk_layernorm_after_rope = form.norms == NormPosition::Both;
  model.hidden_dropout = 0.1;
  config.precision.f64 = true;
  config.batch.micro_batch_size = 1;
  config.batch.train_iters = config.lr.lr_decay_iters.emplace(4);
  config.zero.zero_min_unit_params = 2000;
  config.eval.eval_iters = 2;
  return config;
}

TEST(Block, CurvesAgreeOnEveryMesh) {
  for (const BlockForm& form : {BlockForm{NormPosition::Output, ParallelResidual::None},
                                {NormPosition::Both, ParallelResidual::None},
                                {NormPosition::Input, ParallelResidual::TwoNorms},
                                {NormPosition::Both, ParallelResidual::OneNorm}}) {
    const PretrainConfig base = block_run(form);
    const Curve one = train_and_evaluate(base);
    EXPECT_LT(one.losses.back(), one.losses.front());
    for (const RunMesh& mesh :
         {RunMesh{.tp = 2, .sequence_parallel = true, .recompute = RecomputeGranularity::Selective},
          {.dp = 2, .tp = 2, .sequence_parallel = true, .zero = 2, .recompute = RecomputeGranularity::Full},
          {.pp = 2, .schedule = "zb-h1"},
          {.dp = 2, .pp = 2, .zero = 3, .recompute = RecomputeGranularity::Selective, .head_parts = 2}}) {
      SCOPED_TRACE(fmt::format("norms {} parallel {}: dp {} tp {} pp {} zero {} {} recompute {}",
                               static_cast<int>(form.norms), static_cast<int>(form.parallel), mesh.dp,
                               mesh.tp, mesh.pp, mesh.zero, mesh.schedule, static_cast<int>(mesh.recompute)));
      const Curve cut = train_and_evaluate(mesh.of(base));
      EXPECT_LT(relative_error(cut.losses, one.losses), 1e-11);
      EXPECT_LT(relative_error(cut.grad_norms, one.grad_norms), 1e-10);
      EXPECT_LT(relative_error(*cut.valid_loss, *one.valid_loss), 1e-11);
    }
  }
}

// Each option changes the model.
TEST(Block, EveryChoiceCounts) {
  const PretrainConfig base = block_run({NormPosition::Both, ParallelResidual::TwoNorms});
  const double loss = train_and_evaluate(base).losses.front();
  const auto changed = [&](auto change) {
    PretrainConfig config = base;
    change(config.model);
    return train_and_evaluate(config).losses.front();
  };
  EXPECT_NE(changed([](ModelConfig& model) { model.norm_position = NormPosition::Input; }), loss);
  EXPECT_NE(changed([](ModelConfig& model) { model.parallel_residual = ParallelResidual::None; }), loss);
  EXPECT_NE(changed([](ModelConfig& model) { model.embedding_multiplier = 1; }), loss);
  EXPECT_NE(changed([](ModelConfig& model) { model.residual_multiplier = 1; }), loss);
  EXPECT_NE(changed([](ModelConfig& model) { model.logits_scaling = 1; }), loss);
  EXPECT_NE(changed([](ModelConfig& model) { model.softmax_scale.reset(); }), loss);
  EXPECT_NE(changed([](ModelConfig& model) { model.final_logit_softcapping.reset(); }), loss);
}

}  // namespace
}  // namespace trifold::test
