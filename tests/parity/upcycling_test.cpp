// A mixture of experts that begins with the weights of a dense model computes what that model did, on any mesh.
#include <gtest/gtest.h>

#include "support/compare.h"
#include "support/files.h"
#include "support/training.h"

namespace trifold::test {
namespace {

PretrainConfig dense_run(bool swiglu, bool bias = false) {
  PretrainConfig config = small_run();
  if (swiglu) make_llama(config.model, 2);
  config.model.disable_bias_linear = !bias;
  set_four_steps(config);
  return config;
}

PretrainConfig with_copies(PretrainConfig config, const char* layers, RouterScore score) {
  config.model.num_experts = 8;
  config.model.moe_router_topk = 3;
  config.model.moe_layer_freq = layers;
  config.model.moe_router_score_function = score;
  config.model.moe_router_enable_expert_bias = score == RouterScore::Sigmoid;
  return config;
}

TEST(Upcycling, AMixtureComputesWhatTheDenseModelDid) {
  struct Case {
    bool swiglu;
    const char* layers;
    RouterScore score;
    int dp, tp, pp, ep, zero, etp = 1;
    bool bias = false;
  };
  for (const Case& c : {Case{true, "1", RouterScore::Softmax, 1, 1, 1, 1, 0},
                        Case{true, "2", RouterScore::Sigmoid, 4, 1, 1, 4, 3},
                        Case{false, "1", RouterScore::Softmax, 2, 2, 1, 4, 1},
                        Case{true, "1", RouterScore::Softmax, 4, 1, 1, 2, 3, 2},
                        Case{true, "1", RouterScore::Softmax, 4, 1, 1, 2, 1, 2, true},
                        Case{true, "1", RouterScore::Softmax, 3, 1, 2, 1, 2},
                        Case{false, "[0,1]", RouterScore::Sigmoid, 2, 1, 2, 2, 0}}) {
    SCOPED_TRACE(fmt::format("swiglu {} layers {} dp {} tp {} pp {} ep {} etp {} zero {}", c.swiglu, c.layers,
                             c.dp, c.tp, c.pp, c.ep, c.etp, c.zero));
    const TempDir folder;
    const PretrainConfig dense = dense_run(c.swiglu, c.bias);
    const TrainOptions saved{.save = folder.path().string(), .evaluate = true};
    const double expected = *train(dense, saved).valid_loss;
    PretrainConfig mixture = on_mesh(with_copies(dense, c.layers, c.score), c.dp, c.tp, c.pp);
    mixture.mesh.sequence_parallel = c.tp > 1;
    mixture.mesh.expert_model_parallel_size = c.ep;
    mixture.mesh.expert_tensor_parallel_size = c.etp;
    mixture.zero.zero_stage = c.zero;
    mixture.zero.zero_min_unit_params = 1000;
    if (c.dp == 3) mixture.batch.global_batch_size = 6;
    const std::unique_ptr<DataSource> data = few_tokens(mixture.model);
    run_on_ranks(mixture.mesh, [&](Communicator& world) {
      Trainer trainer(world, mixture, *data, data.get());
      const double before = trainer.evaluate().loss;
      trainer.load(folder.path().string(), LoadPart::Dense);
      if (c.dp != 3) {
        EXPECT_LT(relative_error(trainer.evaluate().loss, expected), 1e-12);
      } else {  // whose evaluations have other batches
        EXPECT_LT(trainer.evaluate().loss, before);
      }
      EXPECT_LT(trainer.step().loss, before);
    });
  }
}

TEST(Upcycling, TakesNoOtherModel) {
  const TempDir folder;
  const PretrainConfig dense = dense_run(true);
  train(dense, 1, "", folder.path().string());
  const auto refusal = [&](const PretrainConfig& config, const std::string& from) {
    const std::unique_ptr<DataSource> data = few_tokens(config.model);
    std::string text;
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, *data, nullptr);
      try {
        trainer.load(from, LoadPart::Dense);
      } catch (const Error& error) {
        text = error.what();
      }
    });
    return text;
  };
  const PretrainConfig mixture = with_copies(dense, "1", RouterScore::Softmax);
  PretrainConfig wider = mixture;
  wider.model.ffn_hidden_size = 64;
  EXPECT_NE(refusal(wider, folder.path().string()).find("ffn_hidden_size"), std::string::npos);
  PretrainConfig shared = mixture;
  shared.model.moe_shared_expert_intermediate_size = 8;
  EXPECT_NE(refusal(shared, folder.path().string()).find("moe_shared_expert_intermediate_size"),
            std::string::npos);
  const TempDir experts;
  train(mixture, 1, "", experts.path().string());
  EXPECT_NE(refusal(mixture, experts.path().string()).find("has experts already"), std::string::npos);
}

}  // namespace
}  // namespace trifold::test
