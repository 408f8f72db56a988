// Low-rank adapters against the peft library (tools/reference/lora_peft.py writes the golden files): ten losses, every
// gradient of the first step and the adapters after ten updates, of LoRA, rsLoRA and DoRA in a Llama and a GPT-2, and of LoRA in a
// DeepSeek-V3, whose attention has latent vectors. Adapters are read from peft's files, and written there; the merged model computes what the adapted one does.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "config/commands/json.h"
#include "convert/convert.h"
#include "models/adapters/frozen_weights.h"
#include "models/folders/open_model.h"
#include "ops/host_copy.h"
#include "support/compare.h"
#include "support/files.h"
#include "support/test_data.h"
#include "support/training.h"
#include "train/start/checkpoint_model.h"

namespace trifold::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

const fs::path kGolden = fs::path(test_data()) / "golden";

json golden_run(const std::string& name) {
  std::ifstream file(kGolden / ("peft_" + name) / "run.json");
  return json::parse(file);
}

// The tokens of run.json, a batch for each step.
class GoldenBatches final : public DataSource {
 public:
  explicit GoldenBatches(const json& run)
      : length_(run["length"]), batch_(run["batch"]), tokens_(run["tokens"]) {}
  int64_t seq_length() const override { return length_; }
  int64_t samples() const override { return static_cast<int64_t>(tokens_.size()) * batch_; }
  void read(Batch& batch, int64_t first) const override {
    batch.first_sample = first;
    for (int64_t b = 0; b < batch.samples(); ++b) {
      const auto sample =
          tokens_[static_cast<size_t>((first + b) / batch_)][static_cast<size_t>((first + b) % batch_)]
              .get<std::vector<int32_t>>();
      for (int64_t t = 0; t < length_; ++t) {
        const int64_t row = b * length_ + t;
        batch.tokens.as<int32_t>()[row] = sample[static_cast<size_t>(t)];
        batch.labels.as<int32_t>()[row] = sample[static_cast<size_t>(t) + 1];
        batch.positions.as<int32_t>()[row] = static_cast<int32_t>(t);
        batch.loss_weight.as<float>()[row] = 1;
      }
    }
  }

 private:
  int64_t length_, batch_;
  json tokens_;
};

PretrainConfig config_of(const json& run, const ModelConfig& model) {
  PretrainConfig config = small_run();
  config.model = model;
  config.model.seq_length = run["length"];
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  if (model.num_experts) config.model.moe_router_bias_update_rate = 0;  // transformers leaves it alone
  config.batch.global_batch_size = config.batch.micro_batch_size = run["batch"].get<int64_t>();
  config.batch.train_iters = run["steps"];
  config.lr = {};
  config.lr.lr = run["lr"];
  config.lr.lr_decay_style = LrDecayStyle::Constant;
  config.optimizer.weight_decay = 0;
  config.optimizer.clip_grad = run["clip"];
  config.optimizer.adam_beta2 = run["beta2"];
  return config;
}

// The names of our modules' tensors in peft's files.
std::string their_name(const std::string& ours, bool llama) {
  static const std::map<std::string, std::string> kLlama{{"attention.query", "self_attn.q_proj"},
                                                         {"attention.key", "self_attn.k_proj"},
                                                         {"attention.value", "self_attn.v_proj"},
                                                         {"attention.out", "self_attn.o_proj"},
                                                         {"mlp.gate", "mlp.gate_proj"},
                                                         {"mlp.up", "mlp.up_proj"},
                                                         {"mlp.down", "mlp.down_proj"}};
  static const std::map<std::string, std::string> kGpt2{{"attention.qkv", "attn.c_attn"},
                                                        {"attention.out", "attn.c_proj"},
                                                        {"mlp.up", "mlp.c_fc"},
                                                        {"mlp.down", "mlp.c_proj"}};
  static const std::map<std::string, std::string> kLatent{
      {"attention.query_down", "self_attn.q_a_proj"},
      {"attention.query_up", "self_attn.q_b_proj"},
      {"attention.key_value_down", "self_attn.kv_a_proj_with_mqa"},
      {"attention.key_value_up", "self_attn.kv_b_proj"}};
  const size_t layer_end = ours.find('.', 6), last = ours.rfind('.');
  const std::string kind = ours.substr(last + 1);
  const auto module_of = [&](const std::string& name) {
    const auto latent = kLatent.find(name);
    return latent != kLatent.end() ? latent->second : (llama ? kLlama : kGpt2).at(name);
  };
  return "base_model.model." + std::string(llama ? "model.layers." : "transformer.h.") +
         ours.substr(6, layer_end - 6) + "." + module_of(ours.substr(layer_end + 1, last - layer_end - 1)) +
         (kind == "lora_a"   ? ".lora_A.weight"
          : kind == "lora_b" ? ".lora_B.weight"
                             : ".lora_magnitude_vector");
}

std::vector<double> values_of(Trainer& trainer, Tensor t) {
  const HostCopy copy(trainer.replica().ops(), trainer.replica().compute(), t);
  std::vector<double> values(static_cast<size_t>(t.elements()));
  dispatch_wide_float(t.dtype, [&](auto zero) {
    std::copy_n(copy.tensor().as<decltype(zero)>(), t.elements(), values.begin());
  });
  return values;
}

std::map<std::string, std::vector<double>> tensors_in(const fs::path& file_name) {
  const SafetensorsFile file(file_name);
  std::map<std::string, std::vector<double>> tensors;
  for (const SafeTensor& tensor : file.tensors()) {
    EXPECT_EQ(tensor.dtype, "F32");
    std::vector<float> values(static_cast<size_t>(tensor.bytes()) / sizeof(float));
    file.read(tensor, 0, values.data(), values.size() * sizeof(float));
    tensors[tensor.name].assign(values.begin(), values.end());
  }
  return tensors;
}

// The mean loss of a model on the batches.
double loss_of(const std::string& folder, const PretrainConfig& run, const DataSource& data) {
  PretrainConfig config = run;
  config.model = model_from_json(open_model(folder).meta().model);
  config.model.seq_length = run.model.seq_length;
  config.model.hidden_dropout = config.model.attention_dropout = 0;
  config.eval.eval_iters = config.batch.train_iters;
  double loss = 0;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, &data);
    trainer.load(folder, LoadPart::Weights);
    loss = trainer.evaluate().loss;
  });
  return loss;
}

class Peft : public ::testing::TestWithParam<const char*> {};

TEST_P(Peft, GivesTheSameTraining) {
  const std::string name = GetParam();
  const bool llama = !name.starts_with("gpt2");
  const std::string folder = (kGolden / ("peft_" + name)).string();
  const json run = golden_run(name);
  const GoldenBatches data(run);
  const PretrainConfig config = config_of(run, model_from_json(open_model(folder).meta().model));
  const TempDir saved;
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, nullptr);
    trainer.load(folder, LoadPart::Weights);
    const ParamList& params = trainer.replica().model().params;
    size_t compared = 0;
    for (size_t i = 0; i < run["losses"].size(); ++i) {
      const StepReport step = trainer.step();
      EXPECT_LT(relative_error(step.loss, run["losses"][i].get<double>()), 1e-5)
          << "loss of step " << step.step;
      EXPECT_LT(relative_error(step.grad_norm, run["norms"][i].get<double>()), i == 0 ? 1e-5 : 1e-4);
      if (i != 0) continue;
      for (const ParamId id : params.by_name()) {
        if (params[id].frozen || params[id].is_buffer) continue;
        ++compared;
        const std::string& ours = params[id].shard.name;
        const auto expected = run["gradients"].at(their_name(ours, llama)).get<std::vector<double>>();
        EXPECT_LT(relative_error(values_of(trainer, trainer.grads().grad(id)), expected), 1e-5)
            << "gradient of " << ours;
      }
      EXPECT_EQ(compared, run["gradients"].size());
    }
    trainer.save(saved.file("run"));
  });

  // The adapters in peft's format, after ten updates.
  ConvertConfig convert;
  convert.load = saved.file("run");
  convert.save = saved.file("peft");
  CheckpointReader reader = open_model(convert.load);
  export_adapters(reader, convert);
  const auto written = tensors_in(fs::path(convert.save) / "adapter_model.safetensors");
  EXPECT_EQ(written.size(), run["after"].size());
  for (const auto& [tensor, values] : written)
    EXPECT_LT(relative_error(values, run["after"].at(tensor).get<std::vector<double>>()), 1e-3) << tensor;
  std::ifstream written_config(fs::path(convert.save) / "adapter_config.json");
  const json made = json::parse(written_config);
  EXPECT_EQ(made["r"], model_from_json(reader.meta().model).adapters.lora_rank.value());
  EXPECT_EQ(made["fan_in_fan_out"], !llama);

  // Read again, imported as a checkpoint, and merged into a Hugging Face model: all compute the same.
  const double loss = loss_of(convert.load, config, data);
  EXPECT_LT(relative_error(loss_of(convert.save, config, data), loss), 1e-6);
  convert.load = convert.save;
  convert.save = saved.file("imported");
  import_adapters(convert);
  EXPECT_LT(relative_error(loss_of(convert.save, config, data), loss), 1e-6);
  CheckpointReader whole = merged(open_model(convert.save));
  convert.save = saved.file("merged");
  convert.dtype = DType::F32;  // not the type of the frozen weights, which have 16 bits in one model
  export_model(whole, convert);
  EXPECT_LT(relative_error(loss_of(convert.save, config, data), loss), 1e-6);
  // After ten updates in f32; a router's choice may turn on the last bits.
  EXPECT_LT(relative_error(loss, run["loss_after"].get<double>()), config.model.num_experts ? 1e-3 : 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Adapters, Peft,
                         ::testing::Values("llama_lora", "llama_rs", "llama_dora", "gpt2_lora", "gpt2_rs",
                                           "gpt2_dora", "deepseek_v3_lora"),
                         [](const auto& test) { return std::string(test.param); });

// The begin of a run: magnitudes are the norms of the rows of the frozen weights, so the function is the model's.
TEST(PeftStart, BeginsWithTheFunctionOfTheModel) {
  const json run = golden_run("llama_dora");
  const GoldenBatches data(run);
  const std::string base = (kGolden / "hf_llama").string();
  PretrainConfig config = config_of(run, model_from_json(open_model(base).meta().model));
  const double plain = loss_of(base, config, data);
  config.model.adapters.lora_rank = 3;
  config.model.adapters.dora = true;
  for (const int tp : {1, 2}) {
    const PretrainConfig on = on_mesh(config, 1, tp);
    run_on_ranks(on.mesh, [&](Communicator& world) {
      Trainer trainer(world, on, data, &data);
      trainer.load(base, LoadPart::Weights);
      EXPECT_LT(relative_error(trainer.evaluate().loss, plain), 1e-6);
    });
  }
}

TEST(PeftFiles, AreRefusedWhereTheyDoNotFit) {
  const TempDir folder;
  fs::copy(kGolden / "peft_llama_lora", folder.path() / "adapters");
  const auto with = [&](const char* field, const json& value) {
    std::ifstream in(kGolden / "peft_llama_lora" / "adapter_config.json");
    json config = json::parse(in);
    config["base_model_name_or_path"] = (kGolden / "hf_llama").string();
    config[field] = value;
    write_file((folder.path() / "adapters" / "adapter_config.json").string(), config.dump());
    return error_of([&] { open_model(folder.path() / "adapters"); });
  };
  EXPECT_NE(with("bias", "all").find("'bias' is \"all\""), std::string::npos);
  EXPECT_NE(with("r", 5).find("lora_A"), std::string::npos);
  EXPECT_NE(with("modules_to_save", json::array({"lm_head"})).find("'modules_to_save'"), std::string::npos);
  EXPECT_NE(with("base_model_name_or_path", "meta-llama/none").find("no folder here"), std::string::npos);
  EXPECT_NE(with("base_model_name_or_path", (kGolden / "hf_gpt2").string()).find("no linear layer"),
            std::string::npos);
  EXPECT_NE(with("init_lora_weights", "pissa").find("'init_lora_weights' is \"pissa\""), std::string::npos);
  EXPECT_NE(with("use_dora", true).find("has no lora_magnitude_vector"), std::string::npos);
}

// A part of a layer that is one layer in transformers has no counterpart in peft's files.
TEST(PeftFiles, NeedTheLayersOfTransformers) {
  const TempDir folder;
  const json run = golden_run("gpt2_lora");
  const GoldenBatches data(run);
  const std::string base = (kGolden / "hf_gpt2").string();
  PretrainConfig config = config_of(run, model_from_json(open_model(base).meta().model));
  config.model.adapters.lora_rank = 2;
  config.model.adapters.lora_targets = {"query"};
  run_on_ranks(config.mesh, [&](Communicator& world) {
    Trainer trainer(world, config, data, nullptr);
    trainer.load(base, LoadPart::Weights);
    trainer.save(folder.file("run"));
  });
  ConvertConfig convert;
  convert.load = folder.file("run");
  convert.save = folder.file("peft");
  CheckpointReader reader = open_model(convert.load);
  EXPECT_NE(error_of([&] { export_adapters(reader, convert); }).find("--lora-targets qkv"),
            std::string::npos);
}

}  // namespace
}  // namespace trifold::test
