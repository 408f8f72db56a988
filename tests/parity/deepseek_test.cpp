// The loss and every gradient of a small DeepSeek-V3 that PyTorch made (tools/reference/deepseek_torch.py), in f64 and
// f32, on one rank and on several; and what its files may not ask for.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "convert/convert.h"
#include "parity/hugging_face_golden.h"
#include "support/compare.h"
#include "train/start/checkpoint_model.h"

namespace trifold::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

fs::path golden() { return golden_model("hf_deepseek_v3"); }

class DeepSeek : public testing::Test {
 protected:
  DeepSeek() : folder_(fs::temp_directory_path() / ("trifold_deepseek_" + random_id())) {
    fs::create_directories(folder_);
  }
  ~DeepSeek() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Converted import(const fs::path& from, std::vector<std::string>* warnings = nullptr) {
    ConvertConfig config;
    config.load = from.string();
    config.save = (folder_ / "in").string();
    return import_model(config, [&](const std::string& warning) {
      if (warnings != nullptr) warnings->push_back(warning);
    });
  }
  // A copy of the golden model whose config.json is changed.
  fs::path changed(const std::function<void(json&)>& change) {
    const fs::path to = folder_ / "changed";
    fs::remove_all(to);
    fs::copy(golden(), to);
    json config = json::parse(std::ifstream(to / "config.json"));
    change(config);
    std::ofstream(to / "config.json") << config;
    return to;
  }
  std::string refusal(const std::function<void(json&)>& change) {
    try {
      import(changed(change));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::BadInput);
      return error.what();
    }
    ADD_FAILURE() << "nothing was thrown";
    return {};
  }

  fs::path folder_;
};

TEST_F(DeepSeek, HasTheLossAndTheGradientsOfPyTorch) {
  const Converted done = import(golden());
  const json expected = json::parse(std::ifstream(golden() / "logits.json"));
  const OneText text(expected.at("ids").get<std::vector<int32_t>>());
  const Gradients theirs = golden_gradients("hf_deepseek_v3", done.model);
  EXPECT_GT(theirs.size(), 25U);
  for (const bool f64 : {true, false})
    for (const int tp : {1, 2}) {
      PretrainConfig config = on_mesh(small_run(), 1, tp);
      config.model = done.model;
      config.model.seq_length = text.seq_length();
      config.model.max_position_embeddings = done.model.max_position_embeddings;
      config.batch.micro_batch_size = 2;  // of which tensor ranks have a part each
      config.batch.global_batch_size = 2;
      config.mesh.sequence_parallel = tp > 1;
      config.precision.f64 = f64;
      config.optimizer.clip_grad = 0;
      const FirstStep step = first_step(config, done.to, text);
      EXPECT_NEAR(step.loss, expected.at("loss").get<double>(), f64 ? 1e-12 : 1e-5);
      ASSERT_EQ(step.gradients.size(), theirs.size());
      // Two ranks sum in another order, which f32 rounds to 1.1e-5 in one tensor.
      const double most = f64 ? 1e-10 : tp == 1 ? 1e-5 : 2e-5;
      for (const auto& [name, gradient] : theirs)
        EXPECT_LT(relative_error(step.gradients.at(name), gradient), most)
            << name << (f64 ? " in f64" : " in f32") << ", tp " << tp;
    }
}

// Two modules after the last layer predict the second and the third next token.
TEST_F(DeepSeek, HasTheLossesAndTheGradientsOfPyTorchWithModules) {
  const Converted done = import(golden_model("hf_deepseek_modules"));
  EXPECT_EQ(done.model.mtp_num_layers, 2);
  const json expected = golden_json("hf_deepseek_modules", "logits.json");
  const OneText text(expected.at("ids").get<std::vector<int32_t>>());
  const Gradients theirs = golden_gradients("hf_deepseek_modules", done.model);
  for (const int tp : {1, 2}) {
    PretrainConfig config = on_mesh(small_run(), 1, tp);
    config.model = done.model;
    config.model.seq_length = text.seq_length();
    config.model.max_position_embeddings = done.model.max_position_embeddings;
    config.batch.micro_batch_size = config.batch.global_batch_size.emplace(2);
    config.mesh.sequence_parallel = tp > 1;
    config.precision.f64 = true;
    config.optimizer.clip_grad = 0;
    const FirstStep step = first_step(config, done.to, text);
    EXPECT_NEAR(step.loss, expected.at("loss").get<double>(), 1e-12);
    ASSERT_EQ(step.later_losses.size(), 2U);
    for (size_t k = 0; k < 2; ++k)
      EXPECT_NEAR(step.later_losses[k], expected.at("module_losses")[k].get<double>(), 1e-12) << k;
    ASSERT_EQ(step.gradients.size(), theirs.size());
    for (const auto& [name, gradient] : theirs)
      EXPECT_LT(relative_error(step.gradients.at(name), gradient), 1e-10) << name << ", tp " << tp;
  }
}

TEST_F(DeepSeek, LeavesOutLayersThatPredictFurtherTokens) {
  // The last layer of the golden model, seen as one of them.
  std::vector<std::string> warnings;
  const Converted done = import(changed([](json& c) { c["num_hidden_layers"] = 2; }), &warnings);
  EXPECT_EQ(done.model.num_layers, 2);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("tensors of the layers after the model's 2 are left out"), std::string::npos)
      << warnings[0];
}

TEST_F(DeepSeek, NamesFieldsThatItCannotCompute) {
  struct Case {
    const char* expected;
    std::function<void(json&)> change;
  };
  const Case cases[] = {
      {"'rope_interleave' is false", [](json& c) { c["rope_interleave"] = false; }},
      {"'attention_bias' is true", [](json& c) { c["attention_bias"] = true; }},
      {"'num_key_value_heads' is 1", [](json& c) { c["num_key_value_heads"] = 1; }},
      {"'topk_method' is \"greedy\"", [](json& c) { c["topk_method"] = "greedy"; }},
      {"'scoring_func' is \"softmax\"", [](json& c) { c["scoring_func"] = "softmax"; }},
      {"'norm_topk_prob' is false", [](json& c) { c["norm_topk_prob"] = false; }},
      {"'num_experts_per_tok' is 4 with 'topk_group' 3", [](json& c) { c["topk_group"] = 3; }},
      {"'first_k_dense_replace' is 3", [](json& c) { c["first_k_dense_replace"] = 3; }},
      {"'n_shared_experts' is 0", [](json& c) { c["n_shared_experts"] = 0; }},
      {"'kv_lora_rank' is \"wide\"", [](json& c) { c["kv_lora_rank"] = "wide"; }},
      {"'head_dim' is 6; the other fields make it", [](json& c) { c["head_dim"] = 6; }},
      {"'layer_types' is a list", [](json& c) { c["layer_types"] = {"linear_attention"}; }},
      {"'rope_scaling': 'mscale_all_dim' is supported with the type yarn alone",
       [](json& c) { c["rope_scaling"]["type"] = "linear"; }},
      {"weights must not be quantized",
       [](json& c) {
         c["quantization_config"] = {{"quant_method", "fp8"}, {"fmt", "e4m3"}};
       }},
  };
  for (const Case& c : cases) {
    const std::string text = refusal(c.change);
    EXPECT_NE(text.find(c.expected), std::string::npos) << c.expected << "\n" << text;
  }
}

}  // namespace
}  // namespace trifold::test
