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

ModelConfig read_experts(ConfigReader& from, const char* experts, double rotary_base, double norm_epsilon) {
  ModelConfig model = read_llama(from);
  if (!from.has("rope_theta") && !from.has("rope_parameters")) model.rotary_base = rotary_base;
  if (!from.has("rms_norm_eps")) model.norm_epsilon = norm_epsilon;
  model.num_experts = from.size(experts);
  constexpr double kMostNetworks = 1 << 20;  // each has its own tensors
  if (static_cast<double>(*model.num_experts) * static_cast<double>(model.num_layers) > kMostNetworks)
    from.problem(fmt::format("'{}' is {}: over {} layers that makes more than {} experts", experts,
                             *model.num_experts, model.num_layers, kMostNetworks));
  model.moe_router_topk = read_choices(from, experts, *model.num_experts);
  return model;
}

// After the layers with experts are known.
void read_balance_loss(ConfigReader& from, ModelConfig& model) {
  if (from.flag("output_router_logits", false) && model.num_layers > 0 && layers_by_choices(model) > 0)
    model.moe_aux_loss_coeff = from.number("router_aux_loss_coef", 0.001) / layers_by_choices(model);
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
  const int64_t step = from.size("decoder_sparse_step", 1);
  if (step < 1) return from.problem("'decoder_sparse_step' is 0; no layer would have experts");
  if (model.num_layers > kMostLayers) return;  // rejected later
  std::vector<bool> experts;
  for (int64_t layer = 1; layer <= model.num_layers; ++layer) experts.push_back(layer % step == 0);
  if (from.has("mlp_only_layers")) {
    const json& layers = from.at("mlp_only_layers");
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
  config["output_router_logits"] = model.moe_aux_loss_coeff > 0;
  if (model.moe_aux_loss_coeff > 0)
    config["router_aux_loss_coef"] = model.moe_aux_loss_coeff * layers_by_choices(model);
  return config;
}

std::vector<std::string> experts_miss(const ModelConfig& model) {
  return not_met(
      {{!model.multi_latent_attention, "no --multi-latent-attention"},
       {model.position_embedding_type == PositionEmbedding::Rope, "--position-embedding-type rope"},
       {model.normalization == Normalization::RmsNorm, "--normalization RMSNorm"},
       {model.rotary_percent == 1, "--rotary-percent 1"},
       {model.swiglu, "--swiglu"},
       {model.hidden_dropout == 0, "--hidden-dropout 0"},
       {model.moe_router_score_function == RouterScore::Softmax, "--moe-router-score-function softmax"},
       {!model.moe_router_num_groups, "no --moe-router-num-groups"},
       {model.moe_router_topk_scaling_factor == 1, "--moe-router-topk-scaling-factor 1"}});
}

ModelConfig read_mixtral(ConfigReader& from) {
  ModelConfig model = read_experts(from, "num_local_experts", 1e6, 1e-5);
  from.must_be("sliding_window", {nullptr}, nullptr);
  from.must_be("router_jitter_noise", {0.0}, 0.0);  // of what experts read too
  read_balance_loss(from, model);
  return model;
}

json mixtral_json(const ModelConfig& model) {
  json config = experts_json(model, "MixtralForCausalLM", "mixtral");
  config.erase("attention_bias");
  config["intermediate_size"] = expert_width(model);
  config["num_local_experts"] = *model.num_experts;
  return config;
}

std::vector<std::string> mixtral_misses(const ModelConfig& model) {
  std::vector<std::string> missing = experts_miss(model);
  for (std::string& option :
       not_met({{!model.moe_router_pre_softmax, "no --moe-router-pre-softmax"},
                {!model.moe_shared_expert_intermediate_size, "no --moe-shared-expert-intermediate-size"},
                {!model.add_qkv_bias, "no --add-qkv-bias"},
                {count_expert_layers(model) == model.num_layers, "--moe-layer-freq 1"}}))
    missing.push_back(std::move(option));
  return missing;
}

ModelConfig read_qwen3(ConfigReader& from) {
  ModelConfig model = read_experts(from, "num_experts", 1e4, 1e-6);
  model.qk_layernorm = true;
  model.moe_ffn_hidden_size = from.size("moe_intermediate_size");
  model.moe_router_pre_softmax = !from.flag("norm_topk_prob", false);
  from.must_be("use_sliding_window", {false}, false);
  read_expert_layers(from, model);
  read_balance_loss(from, model);
  return model;
}

// The fields that Qwen's two families share.
json qwen_json(const ModelConfig& model, const char* architecture, const char* type) {
  json config = experts_json(model, architecture, type);
  config["num_experts"] = *model.num_experts;
  config["moe_intermediate_size"] = expert_width(model);
  config["norm_topk_prob"] = !model.moe_router_pre_softmax;
  write_expert_layers(config, model);
  return config;
}

json qwen3_json(const ModelConfig& model) { return qwen_json(model, "Qwen3MoeForCausalLM", "qwen3_moe"); }

std::vector<std::string> qwen3_misses(const ModelConfig& model) {
  std::vector<std::string> missing = experts_miss(model);
  for (std::string& option :
       not_met({{!model.moe_shared_expert_intermediate_size, "no --moe-shared-expert-intermediate-size"},
                {!model.add_qkv_bias, "no --add-qkv-bias"}}))
    missing.push_back(std::move(option));
  return missing;
}

ModelConfig read_qwen2(ConfigReader& from) {
  ModelConfig model = read_experts(from, "num_experts", 1e4, 1e-6);
  model.add_qkv_bias = from.flag("qkv_bias", true);
  model.moe_ffn_hidden_size = from.size("moe_intermediate_size");
  model.moe_shared_expert_intermediate_size = from.size("shared_expert_intermediate_size");
  model.moe_shared_expert_gate = true;
  model.moe_router_pre_softmax = !from.flag("norm_topk_prob", false);
  from.must_be("use_sliding_window", {false}, false);
  read_expert_layers(from, model);
  read_balance_loss(from, model);
  return model;
}

json qwen2_json(const ModelConfig& model) {
  json config = qwen_json(model, "Qwen2MoeForCausalLM", "qwen2_moe");
  config.erase("attention_bias");
  config.erase("head_dim");
  config["qkv_bias"] = model.add_qkv_bias;
  config["shared_expert_intermediate_size"] = *model.moe_shared_expert_intermediate_size;
  return config;
}

std::vector<std::string> qwen2_misses(const ModelConfig& model) {
  std::vector<std::string> missing = experts_miss(model);
  for (std::string& option :
       not_met({{!model.qk_layernorm, "no --qk-layernorm"},
                {!model.kv_channels || *model.kv_channels * model.num_attention_heads == model.hidden_size,
                 "no --kv-channels"},
                {model.moe_shared_expert_gate, "--moe-shared-expert-gate"}}))
    missing.push_back(std::move(option));
  return missing;
}

// Llama's names and those of experts.
TensorNames names_of(std::vector<TensorNames::Entry> experts) {
  TensorNames names = llama_family().names;
  for (TensorNames::Entry& entry : experts) names.in_block.push_back(std::move(entry));
  return names;
}

}  // namespace

const HuggingFaceFamily& mixtral_family() {
  static const HuggingFaceFamily kFamily{
      "Mixtral",
      "mixtral",
      names_of({{"mlp.router.weight", {"block_sparse_moe.gate.weight"}},
                {"mlp.experts.up.weight",
                 {"block_sparse_moe.experts.*.w1.weight", "block_sparse_moe.experts.*.w3.weight"}},
                {"mlp.experts.down.weight", {"block_sparse_moe.experts.*.w2.weight"}}}),
      read_mixtral,
      mixtral_json,
      mixtral_misses,
      llama_family().ignores,
      llama_family().auto_class};
  return kFamily;
}

const HuggingFaceFamily& qwen3_moe_family() {
  static const HuggingFaceFamily kFamily{
      "Qwen3-MoE",
      "qwen3_moe",
      names_of({{"attention.query_norm.gain", {"self_attn.q_norm.weight"}},
                {"attention.key_norm.gain", {"self_attn.k_norm.weight"}},
                {"mlp.router.weight", {"mlp.gate.weight"}},
                {"mlp.experts.up.weight", {"mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight"}},
                {"mlp.experts.down.weight", {"mlp.experts.*.down_proj.weight"}}}),
      read_qwen3,
      qwen3_json,
      qwen3_misses,
      llama_family().ignores,
      llama_family().auto_class};
  return kFamily;
}

const HuggingFaceFamily& qwen2_moe_family() {
  static const HuggingFaceFamily kFamily{
      "Qwen2-MoE",
      "qwen2_moe",
      names_of({{"mlp.router.weight", {"mlp.gate.weight"}},
                {"mlp.experts.up.weight", {"mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight"}},
                {"mlp.experts.down.weight", {"mlp.experts.*.down_proj.weight"}},
                {"mlp.shared.up.weight",
                 {"mlp.shared_expert.gate_proj.weight", "mlp.shared_expert.up_proj.weight"}},
                {"mlp.shared.down.weight", {"mlp.shared_expert.down_proj.weight"}},
                {"mlp.shared.gate.weight", {"mlp.shared_expert_gate.weight"}}}),
      read_qwen2,
      qwen2_json,
      qwen2_misses,
      llama_family().ignores,
      llama_family().auto_class};
  return kFamily;
}

}  // namespace trifold
