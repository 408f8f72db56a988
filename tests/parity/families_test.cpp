// Every family of Hugging Face that transformers computed (tools/reference/hugging_face_families.py): the gradients of a
// loss, and the losses of ten steps of gradient descent, on one rank and on tensor, pipeline, context and expert ranks.
#include <gtest/gtest.h>

#include <fstream>

#include "convert/convert.h"
#include "parity/hugging_face_golden.h"
#include "support/compare.h"

namespace trifold::test {
namespace {

namespace fs = std::filesystem;

struct RanksOf {
  const char* name;
  int data, tensor, pipeline, context, expert;
};
constexpr RanksOf kRanks[] = {{"1 rank", 1, 1, 1, 1, 1},
                              {"tensor", 1, 2, 1, 1, 1},
                              {"pipeline", 1, 1, 2, 1, 1},
                              {"context", 1, 1, 1, 2, 1},
                              {"expert", 2, 1, 1, 1, 2}};

class Families : public testing::TestWithParam<std::string> {
 protected:
  Families() : folder_(fs::temp_directory_path() / ("trifold_families_" + random_id())) {
    fs::create_directories(folder_);
  }
  ~Families() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  fs::path folder_;
};

PretrainConfig run_of(const ModelConfig& model, const RanksOf& ranks, int64_t length, double rate) {
  PretrainConfig config = on_mesh(small_run(), ranks.data, ranks.tensor, ranks.pipeline, ranks.context);
  config.mesh.expert_model_parallel_size = ranks.expert;
  config.mesh.sequence_parallel = ranks.tensor > 1;
  config.model = model;
  config.model.seq_length = length;
  config.model.moe_router_bias_update_rate = 0;
  config.batch.micro_batch_size = 1;
  config.batch.global_batch_size = 2;
  config.optimizer.optimizer = OptimizerKind::Sgd;
  config.optimizer.sgd_momentum = config.optimizer.weight_decay = config.optimizer.clip_grad = 0;
  config.lr.lr = rate;
  config.lr.lr_decay_style = LrDecayStyle::Constant;
  config.lr.lr_warmup_iters = 0;
  return config;
}

TEST_P(Families, TrainAsInTransformersOnEveryMesh) {
  ConvertConfig convert;
  convert.load = golden_model(GetParam()).string();
  convert.save = (folder_ / "in").string();
  const Converted done = import_model(convert);
  const nlohmann::json expected = golden_json(GetParam(), "logits.json");
  const auto losses = expected.at("losses").get<std::vector<double>>();
  const OneText text(expected.at("ids").get<std::vector<int32_t>>());
  const Gradients theirs = golden_gradients(GetParam(), done.model);
  for (const RanksOf& ranks : kRanks) {
    if (ranks.expert > 1 && !done.model.num_experts) continue;
    SCOPED_TRACE(ranks.name);
    PretrainConfig config = run_of(done.model, ranks, text.seq_length(), expected.at("rate").get<double>());
    const FirstStep step = first_step(config, done.to, text);
    EXPECT_NEAR(step.loss, losses[0], 1e-6 * losses[0]);
    ASSERT_EQ(step.gradients.size(), theirs.size());
    for (const auto& [name, gradient] : theirs)
      EXPECT_LT(relative_error(step.gradients.at(name), gradient), 1e-5) << name;
    run_on_ranks(config.mesh, [&](Communicator& world) {
      Trainer trainer(world, config, text, nullptr);
      trainer.load(done.to, LoadPart::Weights);
      // Rounding in f32 grows from step to step.
      for (const double loss : losses) EXPECT_NEAR(trainer.step().loss, loss, 1e-5 * losses[0]);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Families, testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const std::string& name : golden_models("gradients.safetensors"))
                             if (golden_json(name, "logits.json").contains("losses")) names.push_back(name);
                           return names;
                         }()),
                         [](const auto& name) {
                           std::string word = name.param;
                           std::replace(word.begin(), word.end(), '-', '_');
                           return word;
                         });

// Each line of the table has a golden model.
TEST(FamiliesOfTheTable, HaveGoldenModels) {
  const std::vector<std::string> models = golden_models("logits.json");
  for (const auto& [type, fields] : hugging_face_fields().at("families").items())
    EXPECT_NE(std::find(models.begin(), models.end(), "hf_" + type), models.end()) << type;
}

}  // namespace
}  // namespace trifold::test
