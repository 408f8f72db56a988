// Mixtral and Qwen3-MoE: Llamas whose feed-forward networks are mixtures of experts.
#include <fmt/format.h>

#include <utility>

#include "models/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

// transformers computes one loss over the routers of all layers, which for evenly used experts equals the number of
// experts per token; we add up one loss per layer, each of which equals 1.
double layers_by_choices(const ModelConfig& model) {
  return static_cast<double>(model.num_layers) / static_cast<double>(model.moe_router_topk);
}

ModelConfig read_experts(ConfigReader& from, const char* experts, double rotary_base, double norm_epsilon) {
  ModelConfig model = read_llama(from);
  if (!from.has("rope_theta") && !from.has("rope_parameters")) model.rotary_base = rotary_base;
  if (!from.has("rms_norm_eps")) model.norm_epsilon = norm_epsilon;
  model.num_experts = from.size(experts);
  constexpr double kMostNetworks = 1 << 20;  // each has its own tensors
  if (static_cast<double>(*model.num_experts) * static_cast<double>(model.num_layers) > kMostNetworks)
    from.problem(fmt::format("'{}' is {}: in {} layers that are more than {} experts", experts,
                             *model.num_experts, model.num_layers, kMostNetworks));
  model.moe_router_topk = from.size("num_experts_per_tok");
  if (from.flag("output_router_logits", false) && model.num_layers > 0)
    model.moe_aux_loss_coeff = from.number("router_aux_loss_coef", 0.001) / layers_by_choices(model);
  return model;
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
      {{model.position_embedding_type == PositionEmbedding::Rope, "--position-embedding-type rope"},
       {model.normalization == Normalization::RmsNorm, "--normalization RMSNorm"},
       {model.rotary_percent == 1, "--rotary-percent 1"},
       {model.swiglu, "--swiglu"},
       {model.hidden_dropout == 0, "--hidden-dropout 0"},
       {model.moe_router_score_function == RouterScore::Softmax, "--moe-router-score-function softmax"},
       {!model.moe_router_num_groups, "no --moe-router-num-groups"},
       {!model.moe_shared_expert_intermediate_size, "no --moe-shared-expert-intermediate-size"},
       {model.moe_router_topk_scaling_factor == 1, "--moe-router-topk-scaling-factor 1"}});
}

ModelConfig read_mixtral(ConfigReader& from) {
  ModelConfig model = read_experts(from, "num_local_experts", 1e6, 1e-5);
  from.must_be("sliding_window", {nullptr}, nullptr);
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
  if (model.moe_router_pre_softmax) missing.emplace_back("no --moe-router-pre-softmax");
  return missing;
}

ModelConfig read_qwen3(ConfigReader& from) {
  ModelConfig model = read_experts(from, "num_experts", 1e4, 1e-6);
  model.qk_layernorm = true;
  model.moe_ffn_hidden_size = from.size("moe_intermediate_size");
  model.moe_router_pre_softmax = !from.flag("norm_topk_prob", false);
  from.must_be("decoder_sparse_step", {1}, 1);
  from.must_be("mlp_only_layers", {json::array(), nullptr}, json::array());
  from.must_be("use_sliding_window", {false}, false);
  return model;
}

json qwen3_json(const ModelConfig& model) {
  json config = experts_json(model, "Qwen3MoeForCausalLM", "qwen3_moe");
  config["num_experts"] = *model.num_experts;
  config["moe_intermediate_size"] = expert_width(model);
  config["norm_topk_prob"] = !model.moe_router_pre_softmax;
  config["decoder_sparse_step"] = 1;
  config["mlp_only_layers"] = json::array();
  return config;
}

// Llama's names, with those of experts in place of the feed-forward network's.
TensorNames names_of(std::vector<TensorNames::Entry> experts) {
  TensorNames names = llama_family().names;
  std::erase_if(names.in_block,
                [](const TensorNames::Entry& entry) { return entry.ours.starts_with("mlp."); });
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
      experts_miss,
      llama_family().ignores,
      llama_family().auto_class};
  return kFamily;
}

}  // namespace trifold
