// Mixtral, Qwen2-MoE and Qwen3-MoE: Llamas whose feed-forward networks are mixtures of experts.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/read_json.h"
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

// transformers computes one loss over the routers of all layers, which for evenly used experts equals the number of
// experts per token; we add up one loss per layer, each of which equals 1.
double layers_by_choices(const ModelConfig& model) {
  return static_cast<double>(count_expert_layers(model)) / static_cast<double>(model.moe_router_topk);
}

// The fields that all families have, with different defaults.
ConfigFields shared_fields(double theta) {
  return joined({{field({"output_router_logits"}, false), field({"router_aux_loss_coef"}, 0.001),
                  fixed("mlp_bias", false).beyond_class()},
                 decoder_fields({.base = theta})});
}

ConfigFields mixtral_fields() {
  return joined(
      {{field({"vocab_size"}, 32000), field({"hidden_size"}, 4096), field({"intermediate_size"}, 14336),
        field({"num_hidden_layers"}, 32), field({"num_attention_heads"}, 32),
        field({"num_key_value_heads"}, 8).or_null(), field({"head_dim"}, nullptr),
        field({"max_position_embeddings"}, 131072), field({"rms_norm_eps"}, 1e-5),
        unused({"bos_token_id"}, 1), unused({"eos_token_id"}, 2), field({"sliding_window"}, nullptr),
        field({"num_experts_per_tok"}, 2), field({"num_experts", "num_local_experts"}, 8),
        fixed("router_jitter_noise", 0.0),  // would also apply to the input of the experts
        field({"layer_types"}, nullptr).beyond_class(), fixed("attention_bias", false).beyond_class(),
        unused({"use_sliding_window"}).beyond_class(), unused({"max_window_layers"}).beyond_class()},
       shared_fields(1e6)});
}

// The fields of Qwen's two families.
ConfigFields qwen_moe_fields() {
  return joined(
      {{field({"vocab_size"}, 151936), field({"hidden_size"}, 2048), field({"num_hidden_layers"}, 24),
        field({"max_position_embeddings"}, 32768), field({"rms_norm_eps"}, 1e-6),
        field({"use_sliding_window"}, false), field({"sliding_window"}, 4096).or_null(),
        field({"decoder_sparse_step"}, 1), field({"norm_topk_prob"}, false),
        field({"mlp_only_layers"}, nullptr), unused({"bos_token_id"}), unused({"eos_token_id"})},
       shared_fields(1e4)});
}

ConfigFields qwen2_fields() {
  return joined({{field({"intermediate_size"}, 5632), field({"num_attention_heads"}, 16),
                  field({"num_key_value_heads"}, 16), field({"max_window_layers"}, 28),
                  field({"moe_intermediate_size"}, 1408), field({"shared_expert_intermediate_size"}, 5632),
                  field({"num_experts_per_tok"}, 4), field({"num_experts"}, 60), field({"qkv_bias"}, true),
                  field({"layer_types"}, nullptr), field({"head_dim"}, nullptr).beyond_class(),
                  fixed("attention_bias", false).beyond_class()},
                 qwen_moe_fields()});
}

ConfigFields qwen3_fields() {
  return joined(
      {{field({"intermediate_size"}, 6144), field({"num_attention_heads"}, 32),
        field({"num_key_value_heads"}, 4), field({"attention_bias"}, false),
        field({"moe_intermediate_size"}, 768), field({"num_experts_per_tok"}, 8),
        field({"num_local_experts", "num_experts"}, 128), field({"head_dim"}, nullptr).beyond_class(),
        field({"layer_types"}, nullptr).beyond_class(), unused({"max_window_layers"}).beyond_class()},
       qwen_moe_fields()});
}

ModelConfig read_experts(ConfigReader& from) {
  ModelConfig model = read_decoder(from);
  read_head_width(from, model);
  read_rope(from, model);
  const char* const experts = "num_experts";
  model.num_experts = from.size(experts);
  constexpr double kMostNetworks = 1 << 20;  // each has its own tensors
  if (static_cast<double>(*model.num_experts) * static_cast<double>(model.num_layers) > kMostNetworks)
    from.problem(fmt::format("'{}' is {}: over {} layers that makes more than {} experts",
                             from.name_of(experts), *model.num_experts, model.num_layers, kMostNetworks));
  model.moe_router_topk = read_choices(from, experts, *model.num_experts);
  return model;
}

// "[0]*1+[1]*3", or "1" if all layers have experts.
std::string pattern_of(const std::vector<bool>& experts) {
  if (std::count(experts.begin(), experts.end(), true) == static_cast<ptrdiff_t>(experts.size())) return "1";
  std::string text;
  for (size_t begin = 0; begin < experts.size();) {
    size_t end = begin;
    while (end < experts.size() && experts[end] == experts[begin]) ++end;
    text += fmt::format("{}[{}]*{}", text.empty() ? "" : "+", experts[begin] ? 1 : 0, end - begin);
    begin = end;
  }
  return text;
}

// Layer i has experts if 'decoder_sparse_step' divides i + 1 and 'mlp_only_layers' does not list it.
void read_expert_layers(ConfigReader& from, ModelConfig& model) {
  constexpr int64_t kMostLayers = 1 << 20;
  const int64_t step = from.size("decoder_sparse_step");
  if (step < 1) return from.problem("'decoder_sparse_step' is 0; no layer would have experts");
  if (model.num_layers > kMostLayers) return;  // rejected later
  std::vector<bool> experts;
  for (int64_t layer = 1; layer <= model.num_layers; ++layer) experts.push_back(layer % step == 0);
  if (from.has("mlp_only_layers")) {
    const json& layers = from.value("mlp_only_layers");
    if (!layers.is_array())
      return from.problem(fmt::format("'mlp_only_layers' is {}; a list of numbers below {} is needed",
                                      printable_json(layers), model.num_layers));
    for (const json& layer : layers) {
      if (!layer.is_number_unsigned() || layer.get<uint64_t>() >= experts.size())
        return from.problem(fmt::format("'mlp_only_layers' has {}; numbers below {} are needed",
                                        printable_json(layer), model.num_layers));
      experts[layer.get<size_t>()] = false;
    }
  }
  if (std::count(experts.begin(), experts.end(), true) == 0 && !experts.empty())
    return from.problem("'decoder_sparse_step' and 'mlp_only_layers' leave no layer with experts");
  model.moe_layer_freq = pattern_of(experts);
}

void write_expert_layers(json& config, const ModelConfig& model) {
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = json::array();
  const std::vector<bool> experts = expert_layers(model);
  for (size_t layer = 0; layer < experts.size(); ++layer)
    if (!experts[layer]) config["mlp_only_layers"].push_back(layer);
}

json experts_json(const ModelConfig& model, const char* architecture, const char* type) {
  json config = llama_json(model);
  config.erase("mlp_bias");
  config["architectures"] = {architecture};
  config["model_type"] = type;
  config["num_experts_per_tok"] = model.moe_router_topk;
  write_balance_loss(config, model);
  return config;
}

std::vector<std::string> experts_miss(const ModelConfig& model) {
  return not_met(
      {{model.rotary_percent == 1, "--rotary-percent 1"},
       {model.moe_router_score_function == RouterScore::Softmax, "--moe-router-score-function softmax"},
       {!model.moe_router_enable_expert_bias, "no --moe-router-enable-expert-bias"},
       {!model.moe_router_num_groups, "no --moe-router-num-groups"},
       {model.moe_router_topk_scaling_factor == 1, "--moe-router-topk-scaling-factor 1"}},
      decoder_misses(model, true));
}

ModelConfig read_mixtral(ConfigReader& from) {
  ModelConfig model = read_experts(from);
  read_one_window(from, model);
  read_balance_loss(from, model);
  return model;
}

json mixtral_json(const ModelConfig& model) {
  json config = experts_json(model, "MixtralForCausalLM", "mixtral");
  config.erase("attention_bias");
  config["intermediate_size"] = expert_width(model);
  config["num_local_experts"] = *model.num_experts;
  config["sliding_window"] = window_json(model);
  return config;
}

std::vector<std::string> mixtral_misses(const ModelConfig& model) {
  return not_met({{!model.qk_layernorm, "no --qk-layernorm"},
                  {!model.moe_router_pre_softmax, "no --moe-router-pre-softmax"},
                  {!model.moe_shared_expert_intermediate_size, "no --moe-shared-expert-intermediate-size"},
                  {!model.add_qkv_bias, "no --add-qkv-bias"},
                  {!model.add_attention_out_bias, "no --add-attention-out-bias"},
                  {count_expert_layers(model) == model.num_layers, "--moe-layer-freq 1"}},
                 experts_miss(model));
}

// What Qwen's two families share.
ModelConfig read_qwen_moe(ConfigReader& from) {
  ModelConfig model = read_experts(from);
  model.moe_ffn_hidden_size = from.size("moe_intermediate_size");
  model.moe_router_pre_softmax = !from.flag("norm_topk_prob");
  read_expert_layers(from, model);
  read_balance_loss(from, model);
  return model;
}

ModelConfig read_qwen3(ConfigReader& from) {
  ModelConfig model = read_qwen_moe(from);
  model.qk_layernorm = true;
  model.add_qkv_bias = model.add_attention_out_bias = from.flag("attention_bias");
  read_one_window(from, model, from.flag("use_sliding_window"));
  return model;
}

// The fields that Qwen's two families share.
json qwen_moe_json(const ModelConfig& model, const char* architecture, const char* type) {
  json config = experts_json(model, architecture, type);
  config["num_experts"] = *model.num_experts;
  config["moe_intermediate_size"] = expert_width(model);
  config["norm_topk_prob"] = !model.moe_router_pre_softmax;
  write_expert_layers(config, model);
  return config;
}

json qwen3_json(const ModelConfig& model) {
  json config = qwen_moe_json(model, "Qwen3MoeForCausalLM", "qwen3_moe");
  config["sliding_window"] = window_json(model);
  config["use_sliding_window"] = !config["sliding_window"].is_null();
  return config;
}

std::vector<std::string> qwen3_misses(const ModelConfig& model) {
  return not_met({{model.qk_layernorm, "--qk-layernorm"},
                  {!model.moe_shared_expert_intermediate_size, "no --moe-shared-expert-intermediate-size"},
                  {model.add_qkv_bias == model.add_attention_out_bias,
                   "both or none of --add-qkv-bias and --add-attention-out-bias"}},
                 experts_miss(model));
}

// Without 'layer_types' the first 'max_window_layers' have windows, every other one of them.
void read_window_layers(ConfigReader& from, ModelConfig& model) {
  const auto window = from.flag("use_sliding_window") ? from.size_or_null("sliding_window") : std::nullopt;
  from.value("sliding_window");
  std::vector<bool> windows = all_but_every(2, model);
  const int64_t layers = from.size("max_window_layers");
  for (int64_t layer = 0; layer < std::ssize(windows); ++layer)
    if (!window || layer >= layers) windows[static_cast<size_t>(layer)] = false;
  read_windows(from, model, window, windows);
}

ModelConfig read_qwen2(ConfigReader& from) {
  ModelConfig model = read_qwen_moe(from);
  model.add_qkv_bias = from.flag("qkv_bias");
  model.moe_shared_expert_intermediate_size = from.size("shared_expert_intermediate_size");
  model.moe_shared_expert_gate = true;
  read_window_layers(from, model);
  return model;
}

json qwen2_json(const ModelConfig& model) {
  json config = qwen_moe_json(model, "Qwen2MoeForCausalLM", "qwen2_moe");
  config.erase("attention_bias");
  config["qkv_bias"] = model.add_qkv_bias;
  config["shared_expert_intermediate_size"] = *model.moe_shared_expert_intermediate_size;
  config["sliding_window"] = window_json(model);
  config["use_sliding_window"] = !config["sliding_window"].is_null();
  config["layer_types"] = layer_types_json(model);
  return config;
}

std::vector<std::string> qwen2_misses(const ModelConfig& model) {
  return not_met(
      {{!model.qk_layernorm, "no --qk-layernorm"},
       {model.moe_shared_expert_intermediate_size.has_value(), "--moe-shared-expert-intermediate-size"},
       {!model.add_attention_out_bias, "no --add-attention-out-bias"},
       {model.moe_shared_expert_gate, "--moe-shared-expert-gate"}},
      experts_miss(model));
}

// Llama's names and the names of experts.
TensorNames names_of(std::vector<TensorNames::Entry> experts) {
  TensorNames names = llama_family().names;
  for (TensorNames::Entry& entry : experts) names.in_block.push_back(std::move(entry));
  return names;
}

}  // namespace

void read_balance_loss(ConfigReader& from, ModelConfig& model) {
  const double coefficient = from.number("router_aux_loss_coef");
  if (from.flag("output_router_logits") && model.num_layers > 0 && layers_by_choices(model) > 0)
    model.moe_aux_loss_coeff = coefficient / layers_by_choices(model);
}

void write_balance_loss(json& config, const ModelConfig& model) {
  config["output_router_logits"] = model.moe_aux_loss_coeff > 0;
  if (model.moe_aux_loss_coeff > 0)
    config["router_aux_loss_coef"] = model.moe_aux_loss_coeff * layers_by_choices(model);
}

TensorNames::Entry gated_experts(bool up) {
  if (up)
    return {"mlp.experts.up.weight",
            {"mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight"},
            false,
            {{"mlp.experts.gate_up_proj"}}};
  return {"mlp.experts.down.weight", {"mlp.experts.*.down_proj.weight"}, false, {{"mlp.experts.down_proj"}}};
}

const HuggingFaceFamily& mixtral_family() {
  static const HuggingFaceFamily kFamily{
      "Mixtral",
      "mixtral",
      mixtral_fields(),
      names_of({{"mlp.router.weight", {"block_sparse_moe.gate.weight"}, false, {{"mlp.gate.weight"}}},
                {"mlp.experts.up.weight",
                 {"block_sparse_moe.experts.*.w1.weight", "block_sparse_moe.experts.*.w3.weight"},
                 false,
                 {{"mlp.experts.*.w1.weight", "mlp.experts.*.w3.weight"},
                  {"mlp.experts.gate_up_proj"},
                  {"block_sparse_moe.experts.gate_up_proj"}}},
                {"mlp.experts.down.weight",
                 {"block_sparse_moe.experts.*.w2.weight"},
                 false,
                 {{"mlp.experts.*.w2.weight"},
                  {"mlp.experts.down_proj"},
                  {"block_sparse_moe.experts.down_proj"}}}}),
      read_mixtral,
      mixtral_json,
      mixtral_misses,
      llama_family().ignores,
      tied_head,
      llama_family().auto_class};
  return kFamily;
}

const HuggingFaceFamily& qwen3_moe_family() {
  static const HuggingFaceFamily kFamily{
      "Qwen3-MoE",
      "qwen3_moe",
      qwen3_fields(),
      with_head_norms(
          names_of({{"mlp.router.weight", {"mlp.gate.weight"}}, gated_experts(true), gated_experts(false)})),
      read_qwen3,
      qwen3_json,
      qwen3_misses,
      llama_family().ignores,
      tied_head,
      llama_family().auto_class};
  return kFamily;
}

const HuggingFaceFamily& qwen2_moe_family() {
  static const HuggingFaceFamily kFamily{
      "Qwen2-MoE",
      "qwen2_moe",
      qwen2_fields(),
      names_of({{"mlp.router.weight", {"mlp.gate.weight"}},
                gated_experts(true),
                gated_experts(false),
                {"mlp.shared.up.weight",
                 {"mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight"}},
                {"mlp.shared.down.weight", {"mlp.shared_expert.down_proj.weight"}},
                {"mlp.shared.gate.weight", {"mlp.shared_expert_gate.weight"}}}),
      read_qwen2,
      qwen2_json,
      qwen2_misses,
      llama_family().ignores,
      tied_head,
      llama_family().auto_class};
  return kFamily;
}

}  // namespace trifold
