// Models in Hugging Face's format go back to the bytes they came from, and what cannot be converted is refused.
#include "convert/convert.h"

#include <gtest/gtest.h>

#include <fstream>
#include <numeric>

#include "checkpoint/inspect.h"
#include "checkpoint/safetensors.h"
#include "files/file.h"
#include "parity/convert_folders.h"
#include "parity/hugging_face_golden.h"
#include "support/test_data.h"
#include "support/training.h"
#include "train/start/checkpoint_model.h"

namespace trifold::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Convert : public ConvertTest {};

std::vector<char> bytes_of(const SafetensorsModel::Entry& entry) {
  std::vector<char> bytes(static_cast<size_t>(entry.tensor->bytes()));
  entry.file->read(*entry.tensor, 0, bytes.data(), bytes.size());
  return bytes;
}

// As the first BERT's files call the vectors of a norm.
std::string older_name(std::string name) {
  const std::pair<std::string, std::string> changes[] = {{".weight", ".gamma"}, {".bias", ".beta"}};
  for (const auto& [now, then] : changes)
    if (name.ends_with(now)) return name.substr(0, name.size() - now.size()) + then;
  return name;
}

// Whatever the buffers and files: little memory makes parts of matrices, little files make many.
TEST_F(Convert, GivesBackEveryBit) {
  for (const std::string& name : golden_models("logits.json"))
    for (const double memory : {256.0, 0.002})
      for (const double gigabytes : {5.0, 4e-6}) {
        SCOPED_TRACE(fmt::format("{}, {} MiB, {} GB", name, memory, gigabytes));
        fs::remove_all(folder_);
        const Converted in = import(golden(name), at("in"), memory);
        const Converted out = export_to(in.to, at("out"), memory, gigabytes);
        EXPECT_EQ(out.files > 1, gigabytes < 1);
        const SafetensorsModel before(golden(name)), after(at("out"));
        int64_t compared = 0;
        for (const auto& [full, entry] : after.tensors()) {
          const size_t prefix = name == "hf_gpt2" ? std::string("transformer.").size() : 0;
          std::string theirs = full.substr(prefix);
          if (!before.tensors().contains(theirs)) theirs = older_name(theirs);
          const auto& source = before.tensors().at(theirs);
          EXPECT_EQ(entry.tensor->dtype, source.tensor->dtype);
          EXPECT_EQ(entry.tensor->shape, source.tensor->shape);
          EXPECT_TRUE(bytes_of(entry) == bytes_of(source)) << full;
          ++compared;
        }
        EXPECT_EQ(compared, in.tensors + 2 * in.model.mtp_num_layers);  // with the modules' copies
        const json given = json::parse(std::ifstream(golden(name) / "config.json"));
        const json written = json::parse(std::ifstream(at("out") + "/config.json"));
        for (const auto& item : given.items()) EXPECT_EQ(written[item.key()], item.value()) << item.key();

        const Converted again = import(at("out"), at("again"), memory);
        CheckpointReader left(in.to), right(again.to);
        const CheckpointDifference difference = trifold::difference(left, right);
        EXPECT_TRUE(difference.bitwise_equal() && difference.fields.empty()) << to_text(difference);
      }
}

// Modules that predict further tokens have copies of the embedding and of the output weight. Without the module that has
// another one, the model has those before it and the rest of its weights.
TEST_F(Convert, DropsModulesWithAnotherEmbedding) {
  const std::string name = "model.layers.3.embed_tokens.weight";
  const Converted whole = import(golden("hf_deepseek_modules"), at("whole"));
  ASSERT_EQ(whole.model.mtp_num_layers, 2);
  const std::string model = changed([](json&) {}, "hf_deepseek_modules");
  {
    const SafetensorsModel files(model);
    const SafetensorsModel::Entry& entry = files.tensors().at(name);
    std::fstream file(entry.file->path(), std::ios::in | std::ios::out | std::ios::binary);
    ASSERT_TRUE(file);
    uint64_t header = 0;
    file.read(reinterpret_cast<char*>(&header), sizeof header);
    file.seekp(static_cast<std::streamoff>(sizeof header + header) + entry.tensor->begin + 1);
    file.put('\x3f');
  }
  std::vector<std::string> notes;
  ConvertConfig config;
  config.load = model;
  config.save = at("in");
  const Converted in = import_model(config, [&](const std::string& note) { notes.push_back(note); });
  EXPECT_EQ(in.model.mtp_num_layers, 1);
  ASSERT_FALSE(notes.empty());
  EXPECT_EQ(notes[0],
            name +
                " differs from model.embed_tokens.weight, which a module that predicts further tokens "
                "shares: the model gets 1 of its 2 modules");
  CheckpointReader before(whole.to), after(in.to);
  const CheckpointDifference difference = trifold::difference(before, after);
  EXPECT_TRUE(difference.tensors.empty() && difference.only_right.empty()) << to_text(difference);
  ASSERT_FALSE(difference.only_left.empty());
  for (const std::string& dropped : difference.only_left)
    EXPECT_TRUE(dropped.starts_with("param/mtp.1.")) << dropped;
}

// A config.json may announce more modules than a model can have, and have none in its files.
TEST_F(Convert, ReadsTheFirstOfManyModules) {
  const auto seven = [](json& config) { config["num_nextn_predict_layers"] = 7; };
  EXPECT_EQ(import(changed(seven, "hf_deepseek_v3"), at("none")).model.mtp_num_layers, 0);
}

TEST_F(Convert, RoundsToTheTypeThatIsAskedFor) {
  const Converted in = import(golden("hf_gpt2"), at("in"));
  export_to(in.to, at("out"), 256, 5, DType::BF16);
  const SafetensorsModel before(golden("hf_gpt2")), after(at("out"));
  for (const auto& [name, entry] : after.tensors()) {
    EXPECT_EQ(entry.tensor->dtype, "BF16");
    const std::vector<char> wide =
        bytes_of(before.tensors().at(name.substr(std::string("transformer.").size())));
    const std::vector<char> narrow = bytes_of(entry);
    const auto* from = reinterpret_cast<const float*>(wide.data());
    const auto* to = reinterpret_cast<const Bfloat16*>(narrow.data());
    for (size_t i = 0; i < narrow.size() / sizeof(Bfloat16); ++i)
      ASSERT_EQ(static_cast<float>(to[i]), static_cast<float>(Bfloat16(from[i]))) << name;
  }
  EXPECT_EQ(json::parse(std::ifstream(at("out") + "/config.json"))["torch_dtype"], "bfloat16");
}

// A run of ours on four ranks, with padding and moments, becomes a model, and that the same weights.
TEST_F(Convert, ReadsCheckpointsTrainedOnAMesh) {
  PretrainConfig config = on_mesh(small_run(), 2, 2);
  config.zero.zero_stage = 1;
  config.model.seq_length = 8;
  train(config, 1, "", at("run"));
  const Converted out = export_to(at("run"), at("out"));
  EXPECT_EQ(out.model.seq_length, 8);
  const Converted in = import(at("out"), at("in"));
  CheckpointReader run(at("run")), back(in.to);
  const CheckpointDifference difference = trifold::difference(run, back);
  EXPECT_TRUE(difference.tensors.empty() && difference.only_right.empty()) << to_text(difference);
  EXPECT_EQ(difference.tensors_equal, static_cast<int64_t>(back.tensors().size()));
  for (const std::string& name : difference.only_left) EXPECT_TRUE(name.starts_with("adam_")) << name;
  compare_checkpoint_model(run.meta().model, back.meta().model, LoadPart::All);
}

// Also where four ranks shared the experts, half of each.
TEST_F(Convert, TakesExpertsOfManyRanks) {
  PretrainConfig config = on_mesh(small_run(), 4);
  make_llama(config.model, 2);
  config.model.num_experts = 8;
  config.model.moe_ffn_hidden_size = 24;
  config.mesh.expert_model_parallel_size = 2;
  config.mesh.expert_tensor_parallel_size = 2;
  config.batch.micro_batch_size = 1;
  config.zero.zero_stage = 1;
  train(config, 1, "", at("run"));
  export_to(at("run"), at("out"));
  const Converted in = import(at("out"), at("in"));
  CheckpointReader run(at("run")), back(in.to);
  const CheckpointDifference difference = trifold::difference(run, back);
  EXPECT_TRUE(difference.tensors.empty() && difference.only_right.empty()) << to_text(difference);
  EXPECT_EQ(difference.tensors_equal, static_cast<int64_t>(back.tensors().size()));
  for (const std::string& name : difference.only_left) EXPECT_TRUE(name.starts_with("adam_")) << name;
}

// Every family with modules gives back what it was trained to be; the others say what they lack.
TEST_F(Convert, TakesModulesThatPredictFurtherTokens) {
  for (const char* family : {"deepseek_v3", "kimi_k2", "glm4_moe"}) {
    SCOPED_TRACE(family);
    fs::remove_all(folder_);
    PretrainConfig config = on_mesh(small_run(), 2);
    if (family == std::string("glm4_moe"))
      make_llama(config.model, 2);
    else
      make_latent(config.model, 6);
    ModelConfig& model = config.model;
    if (model.multi_latent_attention) model.latent_norm_epsilon = 1e-6;
    model.num_experts = 8;
    model.moe_ffn_hidden_size = model.moe_shared_expert_intermediate_size.emplace(16);
    model.moe_router_score_function = RouterScore::Sigmoid;
    model.moe_router_enable_expert_bias = true;
    model.mtp_num_layers = 2;
    config.batch.micro_batch_size = 1;
    train(config, 1, "", at("run"));
    ConvertConfig convert;
    convert.load = at("run");
    convert.save = at("out");
    convert.hugging_face_family = family;
    CheckpointReader run(at("run"));
    export_model(run, convert);
    EXPECT_EQ(config_of(at("out"))["num_nextn_predict_layers"], 2);
    const Converted in = import(at("out"), at("in"));
    CheckpointReader back(in.to);
    const CheckpointDifference difference = trifold::difference(run, back);
    EXPECT_TRUE(difference.tensors.empty() && difference.only_right.empty()) << to_text(difference);
    EXPECT_EQ(difference.tensors_equal, static_cast<int64_t>(back.tensors().size()));
    for (const std::string& name : difference.only_left) EXPECT_TRUE(name.starts_with("adam_")) << name;
  }
  PretrainConfig llama = small_run();
  make_llama(llama.model, 2);
  llama.model.qk_layernorm = false;
  llama.model.mtp_num_layers = 1;
  train(llama, 1, "", at("llama"));
  const std::string text = refusal_to_export(at("llama"), "llama");
  EXPECT_NE(text.find("--mtp-num-layers 0"), std::string::npos) << text;
}

TEST_F(Convert, TakesAGptWithSquaredRelu) {
  PretrainConfig config = on_mesh(small_run(), 1);
  config.model.squared_relu = true;
  train(config, 1, "", at("run"));
  export_to(at("run"), at("out"));
  EXPECT_EQ(json::parse(std::ifstream(at("out") + "/config.json"))["activation_function"], "relu2");
  const Converted in = import(at("out"), at("in"));
  EXPECT_TRUE(in.model.squared_relu);
  EXPECT_NE(refusal(changed([](json& c) { c["hidden_act"] = "relu2"; }, "hf_bert"))
                .find("'hidden_act' is \"relu2\""),
            std::string::npos);
}

// Without the head for pairs there is no pooler either, and the library calls it another model.
TEST_F(Convert, TakesABertThatGuessesMaskedTokensOnly) {
  PretrainConfig config = on_mesh(small_run(), 1);
  config.model.model_type = ModelType::Bert;
  config.model.bert_no_binary_head = true;
  train(config, 1, "", at("run"));
  export_to(at("run"), at("out"));
  const json written = json::parse(std::ifstream(at("out") + "/config.json"));
  EXPECT_EQ(written["architectures"], json({"BertForMaskedLM"}));
  EXPECT_EQ(written["hidden_act"], "gelu_new");
  const Converted in = import(at("out"), at("in"));
  CheckpointReader run(at("run")), back(in.to);
  compare_checkpoint_model(run.meta().model, back.meta().model, LoadPart::All);
  const CheckpointDifference difference = trifold::difference(run, back);
  EXPECT_TRUE(difference.tensors.empty() && difference.only_right.empty()) << to_text(difference);
}

TEST_F(Convert, RefusesAModelItCannotCompute) {
  const std::string text = refusal(changed([](json& config) {
    config["activation_function"] = "relu";
    config["scale_attn_by_inverse_layer_idx"] = true;
    config["add_cross_attention"] = true;
    config["embd_pdrop"] = 0.2;
    config["n_layer"] = "two";
    config["n_heads"] = 3;
  }));
  for (
      const char* part :
      {"'activation_function' is \"relu\"; only \"relu2\", \"gelu_new\", \"gelu_pytorch_tanh\" and \"gelu\" are "
       "supported",
       "'scale_attn_by_inverse_layer_idx' is true; only false", "'add_cross_attention' is true",
       "'embd_pdrop' and 'resid_pdrop' differ", "'n_layer' is \"two\"; a whole number",
       "'n_heads' is 3; this field is not known here", "config.json"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  EXPECT_NE(refusal(changed([](json& c) {
              c["model_type"] = "bloom";
            })).find("bert, roberta, xlm-roberta, distilbert, modernbert and electra are supported"),
            std::string::npos);
  EXPECT_NE(refusal(changed([](json& c) { c["n_head"] = 7; })).find("config.json"), std::string::npos);
}

TEST_F(Convert, RefusesRoutingItCannotCompute) {
  const auto expect = [&](const char* model, const char* field, const json& value, const char* expected) {
    const std::string text = refusal(changed([&](json& config) { config[field] = value; }, model));
    EXPECT_NE(text.find(fmt::format("'{}' {}", field, expected)), std::string::npos) << text;
  };
  expect("hf_mixtral", "num_experts_per_tok", 5,
         "is 5; a number from 1 to 'num_local_experts', 4, is needed");
  expect("hf_qwen3_moe", "norm_topk_prob", "yes", "is \"yes\"; true or false is needed");
  expect("hf_qwen3_moe", "mlp_only_layers", json::array({9}), "has 9; numbers below 2 are needed");
  expect("hf_deepseek_v3", "n_group", 3, "is 3; a divisor of 'n_routed_experts', 8, is needed");
  expect("hf_deepseek_v3", "n_group", 0, "is 0; a divisor of 'n_routed_experts', 8, is needed");
  expect("hf_kimi_k2", "topk_group", 0, "is 0; a number from 1 to 'n_group', 1, is needed");
  expect("hf_deepseek_v3", "topk_group", 9, "is 9; a number from 1 to 'n_group', 4, is needed");
}

TEST_F(Convert, RefusesEncodersAndOptsItCannotCompute) {
  const auto expect = [&](const char* model, const char* field, const json& value, const char* expected) {
    const std::string text = refusal(changed([&](json& config) { config[field] = value; }, model));
    EXPECT_NE(text.find(fmt::format("'{}' is {}", field, expected)), std::string::npos) << text;
  };
  expect("hf_opt", "do_layer_norm_before", false, "false; only true is supported");
  expect("hf_opt", "word_embed_proj_dim", 6, "6; only 'hidden_size', 12, is supported");
  expect("hf_opt", "_remove_final_layer_norm", true, "true; only false is supported");
  expect("hf_opt", "layer_norm_elementwise_affine", false, "false; only true is supported");
  expect("hf_opt", "layerdrop", 0.5, "0.5; only 0.0 is supported");
  expect("hf_opt", "activation_function", "silu", "\"silu\"; only \"relu\", \"gelu_new\"");
  expect("hf_roberta", "type_vocab_size", 3, "3; only 1 and 2 are supported");
  expect("hf_roberta", "hidden_act", "gelu_new", "not \"gelu\", which the head always has");
  expect("hf_roberta", "pad_token_id", 41, "41; a token below 'vocab_size', 41, is needed");
  expect("hf_roberta", "pad_token_id", json(), "null; give a value, or remove it for 1");
  expect("hf_roberta", "max_position_embeddings", 4, "4, but positions begin after row 'pad_token_id', 3");
  expect("hf_roberta", "position_embedding_type", "relative_key", "\"relative_key\"; only \"absolute\"");
  expect("hf_xlm-roberta", "architectures", {"XLMRobertaForSequenceClassification"},
         "\"XLMRobertaForSequenceClassification\"; only \"XLMRobertaForMaskedLM\" is supported");
  expect("hf_xlm-roberta", "is_decoder", true, "true; only false is supported");
  expect("hf_distilbert", "activation", "relu", "\"relu\"; only \"gelu_new\"");
  expect("hf_distilbert", "architectures", {"DistilBertForQuestionAnswering"},
         "\"DistilBertForQuestionAnswering\"; only \"DistilBertForMaskedLM\" is supported");
  expect("hf_electra", "architectures", {"ElectraForPreTraining"},
         "\"ElectraForPreTraining\"; only \"ElectraForMaskedLM\" is supported");
  expect("hf_modernbert", "architectures", {"ModernBertForTokenClassification"},
         "\"ModernBertForTokenClassification\"; only \"ModernBertForMaskedLM\" is supported");
  expect("hf_modernbert", "classifier_activation", "gelu_new", "not 'hidden_activation'");
  expect("hf_modernbert", "hidden_activation", "silu", "\"silu\"; only \"gelu_new\"");
  expect("hf_modernbert", "decoder_bias", false, "false; only true is supported");
  expect("hf_modernbert", "attention_dropout", 0.1, "0.1; only 0.0 is supported");
  expect("hf_modernbert", "global_attn_every_n_layers", 0, "0; a number from 1 is needed");
  expect("hf_modernbert", "local_attention", -2, "-2; a whole number from 0");
  expect("hf_modernbert", "layer_types", {"full_attention", "chunked_attention"}, "a list; only layers of");
  expect("hf_modernbert", "tie_word_embeddings", false, "false; only true is supported");
}

// The rows of no position decide where positions begin, so other rows are another model, also with tensors of the same
// shape.
TEST_F(Convert, KeepsTheRowsOfNoPosition) {
  const auto positions = [&](const Converted& model) {
    CheckpointReader reader(model.to);
    for (const TensorInfo& tensor : reader.tensors())
      if (tensor.name.ends_with("embedding.positions.weight")) return tensor.global[0];
    throw std::out_of_range("no table of positions");
  };
  const Converted opt = import(golden("hf_opt"), at("opt"));
  EXPECT_EQ(opt.model.position_embedding_offset, 2);
  EXPECT_EQ(*opt.model.max_position_embeddings, 32);
  EXPECT_EQ(positions(opt), 34);
  const Converted roberta = import(golden("hf_roberta"), at("roberta"));
  EXPECT_EQ(roberta.model.position_embedding_offset, 4);
  EXPECT_EQ(*roberta.model.max_position_embeddings, 32);
  EXPECT_EQ(positions(roberta), 36);
  EXPECT_NE(refusal_to_export(roberta.to, "bert").find("BERT: --position-embedding-offset 0"),
            std::string::npos)
      << refusal_to_export(roberta.to, "bert");
}

// What a ModernBERT has and other encoders have not, and the other way round.
TEST_F(Convert, TellsEncodersApart) {
  const Converted modern = import(golden("hf_modernbert"), at("modern"));
  EXPECT_EQ(modern.model.window_size, (WindowSize{3, 3}));
  EXPECT_TRUE(modern.model.pre_norm && modern.model.no_first_norm && modern.model.disable_bias_norm);
  EXPECT_NE(refusal_to_export(modern.to, "distilbert").find("DistilBERT: "), std::string::npos);
  const Converted distilled = import(golden("hf_distilbert"), at("distilled"));
  EXPECT_NE(refusal_to_export(distilled.to, "modernbert").find("ModernBERT: --pre-norm, --no-first-norm"),
            std::string::npos);
}

// A run of ours becomes the first family of the table that has its types of tokens and its rows of no position.
TEST_F(Convert, WritesRunsAsEncodersOfEveryFamily) {
  const auto written = [&](int64_t types, int64_t offset, bool pairs) {
    fs::remove_all(folder_);
    PretrainConfig config = on_mesh(small_run(), 1);
    config.model.model_type = ModelType::Bert;
    config.model.bert_no_binary_head = !pairs;
    config.model.gelu = GeluKind::Erf;
    config.model.norm_epsilon = 1e-12;
    config.model.num_tokentypes = types;
    config.model.position_embedding_offset = offset;
    train(config, 1, "", at("run"));
    export_to(at("run"), at("out"));
    const Converted in = import(at("out"), at("in"));
    CheckpointReader run(at("run")), back(in.to);
    compare_checkpoint_model(run.meta().model, back.meta().model, LoadPart::All);
    const CheckpointDifference difference = trifold::difference(run, back);
    EXPECT_TRUE(difference.tensors.empty() && difference.only_right.empty()) << to_text(difference);
    return config_of(at("out"));
  };
  EXPECT_EQ(written(1, 0, true)["type_vocab_size"], 1);
  EXPECT_EQ(written(2, 0, false)["model_type"], "bert");
  EXPECT_EQ(written(0, 0, false)["model_type"], "distilbert");
  const json roberta = written(1, 2, false);
  EXPECT_EQ(roberta["model_type"], "roberta");
  EXPECT_EQ(roberta["pad_token_id"], 1);
  const std::string asked = refusal_to_export(at("run"), "distilbert");
  EXPECT_NE(asked.find("DistilBERT: --num-tokentypes 0"), std::string::npos) << asked;
}

TEST_F(Convert, NamesEveryTensorThatDoesNotFit) {
  const std::string text = refusal(changed([](json& config) {
    config["n_layer"] = 3;
    config["vocab_size"] = 68;
  }));
  EXPECT_NE(text.find("tensor transformer.h.2.ln_1.weight is missing"), std::string::npos) << text;
  EXPECT_NE(text.find("tensor wte.weight is [67, 24]; config.json makes it [68, 24]"), std::string::npos)
      << text;
  EXPECT_NE(
      refusal(changed([](json& c) { c["n_layer"] = 1; })).find("tensor h.1.attn.c_attn.bias does not belong"),
      std::string::npos);
}

// A Llama is a Mistral too: it is written as the family it came from, as the one that is asked for, or as the first.
TEST_F(Convert, WritesTheFamilyThatIsAskedFor) {
  const Converted in = import(golden("hf_mistral"), at("in"));
  export_to(in.to, at("same"));
  EXPECT_EQ(config_of(at("same"))["model_type"], "mistral");
  ConvertConfig config;
  config.load = in.to;
  config.save = at("fused");
  config.hugging_face_family = "phi3";
  CheckpointReader reader(in.to);
  export_model(reader, config);
  EXPECT_EQ(config_of(at("fused"))["architectures"], json({"Phi3ForCausalLM"}));
  const Converted again = import(at("fused"), at("again"));
  CheckpointReader right(again.to);
  const CheckpointDifference difference = trifold::difference(reader, right);
  EXPECT_TRUE(difference.bitwise_equal()) << to_text(difference);
  EXPECT_NE(refusal_to_export(in.to, "qwen2")
                .find("--hugging-face-family qwen2 has no model like this one; it "
                      "would need\n  Qwen2: --add-qkv-bias"),
            std::string::npos)
      << refusal_to_export(in.to, "qwen2");
  EXPECT_NE(
      refusal_to_export(in.to, "mistrel").find("--hugging-face-family mistrel is not known; gpt2, llama"),
      std::string::npos);
  EXPECT_NE(refusal_to_export(in.to, "bert").find("bert has no models of --model-type gpt"),
            std::string::npos)
      << refusal_to_export(in.to, "bert");

  PretrainConfig run = on_mesh(small_run(), 1);
  make_llama(run.model, 2);
  run.model.qk_layernorm = false;
  train(run, 1, "", at("run"));
  export_to(at("run"), at("first"));
  EXPECT_EQ(config_of(at("first"))["model_type"], "llama");
}

// What the nearest families would need, not the needs of all.
TEST_F(Convert, WritesNoModelThatTransformersLacks) {
  PretrainConfig config = on_mesh(small_run(), 1);
  config.model.normalization = Normalization::RmsNorm;
  train(config, 1, "", at("run"));
  const std::string text = refusal_to_export(at("run"));
  EXPECT_NE(text.find("the nearest would need\n  GPT-2: --normalization LayerNorm\n"), std::string::npos)
      << text;
  EXPECT_NE(text.find("\n  Llama: --position-embedding-type rope, --swiglu"), std::string::npos) << text;
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 4) << text;
  EXPECT_FALSE(fs::exists(at("out")));
  fs::create_directories(at("full") + "/x");
  import(golden("hf_gpt2"), at("in"));
  EXPECT_THROW(export_to(at("in"), at("full")), Error);
}

}  // namespace
}  // namespace trifold::test
