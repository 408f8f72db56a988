// Norms of outputs, parallel parts, multipliers and soft caps of logits: the same curve on every mesh.
#include <gtest/gtest.h>

#include "support/compare.h"
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

struct BlockMesh {
  int dp, tp, pp, zero = 0;
  RecomputeGranularity recompute = RecomputeGranularity::None;
  const char* schedule = "1f1b";
  int head_parts = 1;
};

PretrainConfig block_on(const PretrainConfig& base, const BlockMesh& mesh) {
  PretrainConfig config = on_mesh(base, mesh.dp, mesh.tp, mesh.pp);
  if (mesh.pp > 1) config = scheduled(config, mesh.schedule, 1);
  config.mesh.sequence_parallel = mesh.tp > 1;
  config.mesh.recompute_granularity = mesh.recompute;
  config.mesh.pipeline_vocab_parts = mesh.head_parts;
  config.zero.zero_stage = mesh.zero;
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
    for (const BlockMesh& mesh : {BlockMesh{1, 2, 1, 0, RecomputeGranularity::Selective},
                                  {2, 2, 1, 2, RecomputeGranularity::Full},
                                  {1, 1, 2, 0, RecomputeGranularity::None, "zb-h1"},
                                  {2, 1, 2, 3, RecomputeGranularity::Selective, "1f1b", 2}}) {
      SCOPED_TRACE(fmt::format("norms {} parallel {}: dp {} tp {} pp {} zero {} {} recompute {}",
                               static_cast<int>(form.norms), static_cast<int>(form.parallel), mesh.dp,
                               mesh.tp, mesh.pp, mesh.zero, mesh.schedule, static_cast<int>(mesh.recompute)));
      const Curve cut = train_and_evaluate(block_on(base, mesh));
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
