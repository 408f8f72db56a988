// ModernBERT: an encoder with norms of the inputs of its layers' parts, gates of GELU, rotary positions and, in all but
// every third layer, attention to the neighbours of a token on both sides. Layers with and without such a window have
// bases of rope of their own.
#include <fmt/format.h>

#include <algorithm>

#include "config/fields/layer_kinds.h"
#include "core/read_json.h"
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr WindowRopeStyle kModernRope{.base = 1.6e5,
                                      .window_base = 1e4,
                                      .window_base_name = "local_rope_theta",
                                      .base_name = "global_rope_theta",
                                      .scales_windows = true};
constexpr int64_t kPadding = 50283;
constexpr const char* kMaskedLanguageModel = "ModernBertForMaskedLM";

// Dropout of attention's probabilities would come with dropout of its output, and dropout in the feed-forward network is
// before its last product, so models with dropout are other models.
ConfigFields modernbert_fields() {
  return joined({{field({"vocab_size"}, 50368),
                  field({"hidden_size"}, 768),
                  field({"intermediate_size"}, 1152),
                  field({"num_hidden_layers"}, 22),
                  field({"num_attention_heads"}, 12),
                  field({"hidden_activation"}, "gelu"),
                  field({"max_position_embeddings"}, 8192),
                  field({"initializer_range"}, 0.02),
                  unused({"initializer_cutoff_factor"}, 2.0),
                  field({"norm_eps"}, 1e-5),
                  field({"norm_bias"}, false),
                  unused({"pad_token_id"}, kPadding),
                  unused({"eos_token_id"}, 50282),
                  unused({"bos_token_id"}, 50281),
                  unused({"cls_token_id"}, 50281),
                  unused({"sep_token_id"}, 50282),
                  field({"attention_bias"}, false),
                  fixed("attention_dropout", 0.0),
                  field({"layer_types"}, nullptr),
                  field({"local_attention"}, 128),
                  fixed("embedding_dropout", 0.0),
                  field({"mlp_bias"}, false),
                  fixed("mlp_dropout", 0.0),
                  fixed("decoder_bias", true),
                  unused({"classifier_pooling"}, "cls"),
                  unused({"classifier_dropout"}, 0.0),
                  field({"classifier_bias"}, false),
                  field({"classifier_activation"}, "gelu"),
                  unused({"deterministic_flash_attn"}, false),
                  unused({"sparse_prediction"}, false),
                  unused({"sparse_pred_ignore_index"}, -100),
                  fixed("tie_word_embeddings", true),
                  field({"architectures"}, nullptr),  // the base class has it
                  field({"global_attn_every_n_layers"}, 3).beyond_class(),
                  unused({"position_embedding_type"}).beyond_class(),
                  unused({"layer_norm_eps"}).beyond_class(),
                  unused({"reference_compile"}).beyond_class(),
                  unused({"repad_logits_with_grad"}).beyond_class()},
                 window_rope_fields(kModernRope)});
}

// Layers, counted from 0, have windows unless their number is a multiple of `period`.
std::vector<bool> all_but_first_of(int64_t period, const ModelConfig& model) {
  std::vector<bool> windows;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) windows.push_back(layer % period != 0);
  return windows;
}

// A token attends to half of 'local_attention' positions on each side of it.
void read_neighbours(ConfigReader& from, ModelConfig& model) {
  const bool listed = from.has("layer_types");
  const int64_t period = listed ? 1 : from.size("global_attn_every_n_layers");
  if (period < 1)
    from.problem(fmt::format("'global_attn_every_n_layers' is {}; a number from 1 is needed",
                             printable_json(from.value("global_attn_every_n_layers"))));
  const int64_t side = from.size("local_attention") / 2;
  read_windows(from, model, side + 1, all_but_first_of(std::max<int64_t>(1, period), model));
  if (model.window_size) model.window_size = WindowSize{side, side};
}

void read_biases_of_parts(ConfigReader& from, ModelConfig& model) {
  const bool attention = from.flag("attention_bias"), mlp = from.flag("mlp_bias");
  const bool head = from.flag("classifier_bias");
  model.disable_bias_linear = !(attention && mlp && head);
  model.add_qkv_bias = model.add_attention_out_bias = attention && model.disable_bias_linear;
  model.add_mlp_bias = mlp && model.disable_bias_linear;
  model.add_head_bias = head && model.disable_bias_linear;
  model.disable_bias_norm = !from.flag("norm_bias");
}

ModelConfig read_modernbert(ConfigReader& from) {
  ModelConfig model = read_sizes(from);
  model.model_type = ModelType::Bert;
  model.pre_norm = model.no_first_norm = true;
  model.num_tokentypes = 0;
  model.position_embedding_type = PositionEmbedding::Rope;
  model.geglu = true;
  model.norm_epsilon = from.number("norm_eps");
  read_gelu(from, "hidden_activation", model);
  ModelConfig head;
  read_gelu(from, "classifier_activation", head);
  if (head.gelu != model.gelu)
    from.problem("'classifier_activation' is not 'hidden_activation'; give both the same value");
  read_biases_of_parts(from, model);
  read_window_rope(from, model, kModernRope);
  read_neighbours(from, model);
  read_masked_words(from, model, kMaskedLanguageModel);
  return model;
}

// The field of older versions of transformers that says which layers have no window, if it can.
void write_period(json& config, const ModelConfig& model) {
  const std::vector<bool> windows = window_layers(model);
  for (int64_t period = 1; period <= std::max<int64_t>(1, model.num_layers); ++period)
    if (windows == all_but_first_of(period, model)) {
      config["global_attn_every_n_layers"] = period;
      return;
    }
}

json modernbert_json(const ModelConfig& model) {
  json config = sizes_json(model);
  const bool biases = !model.disable_bias_linear;
  config.update({{"architectures", {kMaskedLanguageModel}},
                 {"model_type", "modernbert"},
                 {"hidden_activation", gelu_name(model)},
                 {"classifier_activation", gelu_name(model)},
                 {"norm_eps", model.norm_epsilon},
                 {"norm_bias", !model.disable_bias_norm},
                 {"attention_bias", biases || model.add_qkv_bias},
                 {"mlp_bias", biases || model.add_mlp_bias},
                 {"classifier_bias", biases || model.add_head_bias},
                 {"decoder_bias", true},
                 {"attention_dropout", 0.0},
                 {"embedding_dropout", 0.0},
                 {"mlp_dropout", 0.0},
                 {"layer_types", layer_types_json(model)}});
  if (model.window_size) config["local_attention"] = 2 * model.window_size->left;
  // transformers opens no model whose padding is not in the vocabulary.
  if (*model.vocab_size <= kPadding) config["pad_token_id"] = nullptr;
  write_period(config, model);
  write_window_rope(config, model);
  if (turns_plainly(model)) {  // where older versions of transformers look for them
    config[kModernRope.base_name] = model.rotary_base;
    config[kModernRope.window_base_name] = model.window_rotary_base.value_or(model.rotary_base);
  }
  return config;
}

std::vector<std::string> modernbert_misses(const ModelConfig& model) {
  const bool biases = !model.disable_bias_linear;
  const bool window = model.window_size && !model.window_size->covers_all();
  return not_met(
      {{model.pre_norm, "--pre-norm"},
       {model.no_first_norm, "--no-first-norm"},
       {model.norm_position == NormPosition::Input, "--norm-position input"},
       {model.normalization == Normalization::LayerNorm, "--normalization LayerNorm"},
       {model.position_embedding_type == PositionEmbedding::Rope, "--position-embedding-type rope"},
       {model.num_tokentypes == 0, "--num-tokentypes 0"},
       {model.geglu, "--geglu"},
       {key_heads(model) == model.num_attention_heads, "as many key heads as query heads"},
       {!window || (model.window_size->left == model.window_size->right && model.window_size->left >= 0),
        "as many positions before as after a token in --window-size"},
       {biases || model.add_qkv_bias == model.add_attention_out_bias,
        "both or none of --add-qkv-bias and --add-attention-out-bias"},
       {model.hidden_dropout == 0, "--hidden-dropout 0"},
       {model.attention_dropout == 0, "--attention-dropout 0"}},
      masked_words_miss(model));
}

// A weight or a bias, in two entries.
void add_both(std::vector<TensorNames::Entry>& entries, const char* const (&ours)[2],
              const char* const (&theirs)[2]) {
  for (int part = 0; part < 2; ++part) entries.push_back({ours[part], {theirs[part]}});
}

TensorNames modernbert_names() {
  TensorNames names{
      "model.", "layers.", {}, {{"embedding.tokens.weight", {"embeddings.tok_embeddings.weight"}}}};
  auto& block = names.in_block;
  add_both(block, {"norm1.gain", "norm1.bias"}, {"attn_norm.weight", "attn_norm.bias"});
  add_both(block, {"attention.qkv.weight", "attention.qkv.bias"}, {"attn.Wqkv.weight", "attn.Wqkv.bias"});
  add_both(block, {"attention.out.weight", "attention.out.bias"}, {"attn.Wo.weight", "attn.Wo.bias"});
  add_both(block, {"norm2.gain", "norm2.bias"}, {"mlp_norm.weight", "mlp_norm.bias"});
  add_both(block, {"mlp.up.weight", "mlp.up.bias"}, {"mlp.Wi.weight", "mlp.Wi.bias"});
  add_both(block, {"mlp.down.weight", "mlp.down.bias"}, {"mlp.Wo.weight", "mlp.Wo.bias"});
  add_both(names.outside, {"embedding.norm.gain", "embedding.norm.bias"},
           {"embeddings.norm.weight", "embeddings.norm.bias"});
  add_both(names.outside, {"final_norm.gain", "final_norm.bias"}, {"final_norm.weight", "final_norm.bias"});
  add_both(names.head, {"head.dense.weight", "head.dense.bias"}, {"head.dense.weight", "head.dense.bias"});
  add_both(names.head, {"head.norm.gain", "head.norm.bias"}, {"head.norm.weight", "head.norm.bias"});
  names.head.push_back({"head.bias", {"decoder.bias"}});
  return names;
}

}  // namespace

const HuggingFaceFamily& modernbert_family() {
  static const HuggingFaceFamily kFamily{
      .name = "ModernBERT",
      .type = "modernbert",
      .fields = modernbert_fields(),
      .names = modernbert_names(),
      .read = read_modernbert,
      .write = modernbert_json,
      .missing = modernbert_misses,
      // The decoder repeats the embedding.
      .ignores = [](const std::string& theirs, const ModelConfig&) { return theirs == "decoder.weight"; },
      .tied = [](const ModelConfig&) -> std::vector<TiedTensors> {
        return {{"decoder.weight", "model.embeddings.tok_embeddings.weight"}};
      },
      .auto_class = [](const ModelConfig&) { return "MaskedLM"; },
      .may_untie = false,
      .model = ModelType::Bert};
  return kFamily;
}

}  // namespace trifold
