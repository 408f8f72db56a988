// DeepSeek-V3: multi-head latent attention, some dense layers, then experts chosen by sigmoids with a selection bias.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/read_json.h"
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

// The norms of latent vectors have this in transformers, whatever 'rms_norm_eps' is.
constexpr double kNormEpsilon = 1e-6;
// transformers scores a group by this many of its best experts.
constexpr int64_t kScoredExperts = 2;

int64_t dense_layers(const ModelConfig& model) { return model.num_layers - count_expert_layers(model); }

// Dense layers come first.
bool dense_first(const ModelConfig& model) {
  const std::vector<bool> experts = expert_layers(model);
  return std::is_sorted(experts.begin(), experts.end());
}

bool groups_as_theirs(int64_t groups, int64_t chosen_groups, int64_t choices) {
  return groups == 1 || choices == kScoredExperts * chosen_groups;
}

ConfigFields deepseek_fields() {
  return joined(
      {{field({"vocab_size"}, 129280), field({"hidden_size"}, 7168), field({"intermediate_size"}, 18432),
        field({"moe_intermediate_size"}, 2048), field({"num_hidden_layers"}, 61),
        field({"num_attention_heads"}, 128), field({"num_key_value_heads"}, 128).or_null(),
        field({"n_shared_experts"}, 1), field({"num_local_experts", "n_routed_experts"}, 256),
        unused({"output_router_logits"}, false), field({"routed_scaling_factor"}, 2.5),
        field({"kv_lora_rank"}, 512), field({"q_lora_rank"}, 1536).or_null(), field({"qk_rope_head_dim"}, 64),
        field({"v_head_dim"}, 128), field({"qk_nope_head_dim"}, 128), field({"n_group"}, 8),
        field({"topk_group"}, 4), field({"num_experts_per_tok"}, 8), field({"first_k_dense_replace"}, 3),
        field({"norm_topk_prob"}, true).or_null(), fixed("hidden_act", "silu", {"swish"}),
        field({"max_position_embeddings"}, 4096), field({"initializer_range"}, 0.02),
        field({"rms_norm_eps"}, 1e-6), unused({"use_cache"}, true), unused({"pad_token_id"}),
        unused({"bos_token_id"}, 0), unused({"eos_token_id"}, 1), unused({"pretraining_tp"}, 1),
        field({"tie_word_embeddings"}, false), fixed("rope_interleave", true), fixed("attention_bias", false),
        field({"attention_dropout"}, 0.0), unused({"num_nextn_predict_layers", "num_mtp_layers"}, 1),
        // Derived from others.
        field({"head_dim"}, nullptr).beyond_class(), field({"qk_head_dim"}, nullptr).beyond_class(),
        // The authors' own code.
        fixed("scoring_func", "sigmoid").beyond_class(), fixed("topk_method", "noaux_tc").beyond_class(),
        fixed("moe_layer_freq", 1).beyond_class(), field({"aux_loss_alpha"}, 0.0).beyond_class(),
        field({"seq_aux"}, true).beyond_class(), unused({"ep_size"}).beyond_class(),
        field({"layer_types"}, nullptr).beyond_class(), unused({"sliding_window"}).beyond_class(),
        unused({"use_sliding_window"}).beyond_class(), unused({"max_window_layers"}).beyond_class()},
       rope_fields(1e4)});
}

// transformers computes the width of heads, and saves it.
void check_derived(ConfigReader& from, const char* name, int64_t value) {
  if (const auto given = from.size_or_null(name); given && *given != value)
    from.problem(fmt::format("'{}' is {}; the other fields make it {}", name, *given, value));
}

void read_latent(ConfigReader& from, ModelConfig& model) {
  model.multi_latent_attention = model.qk_layernorm = true;
  if (model.group_query_attention)
    from.problem(fmt::format("'num_key_value_heads' is {}; only 'num_attention_heads', {}, is supported",
                             model.num_query_groups, model.num_attention_heads));
  model.group_query_attention = false;
  model.num_query_groups = 1;
  model.q_lora_rank = from.size_or_null("q_lora_rank");
  model.kv_lora_rank = from.size("kv_lora_rank");
  model.qk_head_dim = from.size("qk_nope_head_dim");
  model.qk_pos_emb_head_dim = from.size("qk_rope_head_dim");
  model.v_head_dim = from.size("v_head_dim");
  check_derived(from, "head_dim", model.qk_pos_emb_head_dim);
  check_derived(from, "qk_head_dim", model.qk_head_dim + model.qk_pos_emb_head_dim);
  if (model.norm_epsilon != kNormEpsilon) model.latent_norm_epsilon = kNormEpsilon;
}

void read_groups(ConfigReader& from, ModelConfig& model) {
  const int64_t groups = from.size("n_group"), chosen = from.size("topk_group");
  if (groups <= 1) return;
  if (*model.num_experts % groups != 0)
    return from.problem(fmt::format("'n_group' is {}; a divisor of 'n_routed_experts', {}, is needed", groups,
                                    *model.num_experts));
  if (chosen < 1 || chosen > groups)
    return from.problem(
        fmt::format("'topk_group' is {}; a number from 1 to 'n_group', {}, is needed", chosen, groups));
  model.moe_router_num_groups = groups;
  model.moe_router_group_topk = chosen;
  if (!groups_as_theirs(groups, chosen, model.moe_router_topk))
    from.problem(
        fmt::format("'num_experts_per_tok' is {} with 'topk_group' {}; only twice 'topk_group' is supported, "
                    "because groups are scored by their two best experts",
                    model.moe_router_topk, chosen));
}

void read_experts(ConfigReader& from, ModelConfig& model) {
  const char* const experts = "n_routed_experts";
  model.num_experts = from.size(experts);
  constexpr int64_t kMostNetworks = 1 << 20;  // each has its own tensors
  constexpr int64_t kMostLayers = 1 << 16;
  if (model.num_layers > kMostLayers ||
      *model.num_experts > kMostNetworks / std::max<int64_t>(1, model.num_layers))
    return from.problem(fmt::format("'{}' is {}: over {} layers that makes more than {} experts",
                                    from.name_of(experts), *model.num_experts, model.num_layers,
                                    kMostNetworks));
  model.moe_router_topk = read_choices(from, experts, *model.num_experts);
  model.moe_ffn_hidden_size = from.size("moe_intermediate_size");
  const int64_t shared = from.size("n_shared_experts");
  if (shared > 0) model.moe_shared_expert_intermediate_size = shared * *model.moe_ffn_hidden_size;
  if (shared == 0 || shared > *model.num_experts + 1024)
    from.problem(fmt::format("'n_shared_experts' is {}; from 1 to {} are supported", shared,
                             *model.num_experts + 1024));
  model.moe_router_score_function = RouterScore::Sigmoid;
  model.moe_router_enable_expert_bias = true;
  model.moe_router_topk_scaling_factor = from.number("routed_scaling_factor");
  const int64_t dense = from.size("first_k_dense_replace");
  if (dense >= model.num_layers)
    from.problem(fmt::format("'first_k_dense_replace' is {}; fewer than the {} layers are supported", dense,
                             model.num_layers));
  else if (dense > 0)
    model.moe_layer_freq = fmt::format("[0]*{}+[1]*{}", dense, model.num_layers - dense);
  read_groups(from, model);
  // With one choice, Trifold does not divide the weight by the sum.
  if (from.flag("norm_topk_prob") != (model.moe_router_topk > 1))
    from.problem(fmt::format("'norm_topk_prob' is {} with {} experts per token; only {} is supported",
                             printable_json(from.value("norm_topk_prob")), model.moe_router_topk,
                             model.moe_router_topk > 1));
  model.moe_aux_loss_coeff = from.number("aux_loss_alpha");
  if (!from.flag("seq_aux") && model.moe_aux_loss_coeff > 0)
    model.moe_router_load_balancing_type = RouterBalance::AuxLoss;
}

ModelConfig read_deepseek(ConfigReader& from) {
  ModelConfig model = read_decoder(from);
  read_layer_types(from, model);
  read_latent(from, model);
  read_rope(from, model);
  read_experts(from, model);
  return model;
}

json deepseek_json(const ModelConfig& model) {
  json config = llama_json(model);
  for (const char* other : {"mlp_bias", "head_dim"}) config.erase(other);
  config["architectures"] = {"DeepseekV3ForCausalLM"};
  config["model_type"] = "deepseek_v3";
  config["q_lora_rank"] = model.q_lora_rank ? json(*model.q_lora_rank) : json();
  config["kv_lora_rank"] = model.kv_lora_rank;
  config["qk_nope_head_dim"] = model.qk_head_dim;
  config["qk_rope_head_dim"] = model.qk_pos_emb_head_dim;
  config["v_head_dim"] = model.v_head_dim;
  config["rope_interleave"] = true;
  config["n_routed_experts"] = *model.num_experts;
  config["num_experts_per_tok"] = model.moe_router_topk;
  config["moe_intermediate_size"] = expert_width(model);
  config["n_shared_experts"] = *model.moe_shared_expert_intermediate_size / expert_width(model);
  config["routed_scaling_factor"] = model.moe_router_topk_scaling_factor;
  config["first_k_dense_replace"] = dense_layers(model);
  config["n_group"] = model.moe_router_num_groups.value_or(1);
  config["topk_group"] = model.moe_router_group_topk.value_or(1);
  config["norm_topk_prob"] = model.moe_router_topk > 1;
  config["scoring_func"] = "sigmoid";
  config["topk_method"] = "noaux_tc";
  config["moe_layer_freq"] = 1;
  if (model.moe_aux_loss_coeff > 0) {
    config["seq_aux"] = model.moe_router_load_balancing_type == RouterBalance::SequenceAuxLoss;
    config["aux_loss_alpha"] = model.moe_aux_loss_coeff;
  }
  return config;
}

std::vector<std::string> deepseek_misses(const ModelConfig& model) {
  std::vector<std::string> missing = not_met(
      {{model.qk_layernorm, "--qk-layernorm"},
       {model.normalization == Normalization::RmsNorm, "--normalization RMSNorm"},
       {model.latent_norm_epsilon.value_or(model.norm_epsilon) == kNormEpsilon, "--latent-norm-epsilon 1e-6"},
       {model.swiglu, "--swiglu"},
       {model.hidden_dropout == 0, "--hidden-dropout 0"},
       {model.num_experts.has_value(), "--num-experts"}});
  if (!model.num_experts) return missing;
  const int64_t shared = model.moe_shared_expert_intermediate_size.value_or(0);
  for (std::string& more : not_met(
           {{model.moe_router_score_function == RouterScore::Sigmoid, "--moe-router-score-function sigmoid"},
            {model.moe_router_enable_expert_bias, "--moe-router-enable-expert-bias"},
            {shared > 0 && shared % expert_width(model) == 0,
             "a --moe-shared-expert-intermediate-size that is a multiple of --moe-ffn-hidden-size"},
            {dense_first(model), "a --moe-layer-freq of dense layers, then layers with experts"},
            {groups_as_theirs(model.moe_router_num_groups.value_or(1),
                              model.moe_router_group_topk.value_or(1), model.moe_router_topk),
             "a --moe-router-topk of twice --moe-router-group-topk"}}))
    missing.push_back(std::move(more));
  return missing;
}

// The layer that a tensor's name is in, if any; an index that is too large is not a layer.
std::optional<int64_t> layer_of(std::string_view theirs) {
  for (const std::string_view prefix : {"model.", "layers."})
    if (theirs.starts_with(prefix)) theirs.remove_prefix(prefix.size());
  constexpr size_t kMostDigits = 9;
  const size_t digits = std::min(theirs.find('.'), theirs.size());
  if (digits == 0 || digits > kMostDigits) return std::nullopt;
  int64_t layer = 0;
  for (const char digit : theirs.substr(0, digits)) {
    if (digit < '0' || digit > '9') return std::nullopt;
    layer = layer * 10 + (digit - '0');
  }
  return layer;
}

// The layers after the last one predict further tokens, which transformers does not read either.
bool deepseek_skips(const std::string& theirs, const ModelConfig& model) {
  return layer_of(theirs).value_or(-1) >= model.num_layers;
}

bool deepseek_ignores(const std::string& theirs, const ModelConfig& model) {
  return deepseek_skips(theirs, model) || llama_family().ignores(theirs, model);
}

TensorNames deepseek_names() {
  TensorNames names = llama_family().names;
  std::erase_if(names.in_block, [](const TensorNames::Entry& entry) {
    return entry.ours.starts_with("attention.") && entry.ours != "attention.out.weight";
  });
  const TensorNames::Entry entries[] = {
      {"attention.query.weight", {"self_attn.q_proj.weight"}},
      {"attention.query_down.weight", {"self_attn.q_a_proj.weight"}},
      {"attention.query_norm.gain", {"self_attn.q_a_layernorm.weight"}},
      {"attention.query_up.weight", {"self_attn.q_b_proj.weight"}},
      {"attention.key_value_down.weight", {"self_attn.kv_a_proj_with_mqa.weight"}},
      {"attention.key_value_norm.gain", {"self_attn.kv_a_layernorm.weight"}},
      {"attention.key_value_up.weight", {"self_attn.kv_b_proj.weight"}},
      {"mlp.router.weight", {"mlp.gate.weight"}},
      {"mlp.router.bias", {"mlp.gate.e_score_correction_bias"}},
      gated_experts(true),
      gated_experts(false),
      {"mlp.shared.up.weight", {"mlp.shared_experts.gate_proj.weight", "mlp.shared_experts.up_proj.weight"}},
      {"mlp.shared.down.weight", {"mlp.shared_experts.down_proj.weight"}}};
  for (const TensorNames::Entry& entry : entries) names.in_block.push_back(entry);
  return names;
}

}  // namespace

const HuggingFaceFamily& deepseek_v3_family() {
  static const HuggingFaceFamily kFamily{.name = "DeepSeek-V3",
                                         .type = "deepseek_v3",
                                         .fields = deepseek_fields(),
                                         .names = deepseek_names(),
                                         .read = read_deepseek,
                                         .write = deepseek_json,
                                         .missing = deepseek_misses,
                                         .ignores = deepseek_ignores,
                                         .tied = tied_head,
                                         .auto_class = llama_family().auto_class,
                                         .skips = deepseek_skips};
  return kFamily;
}

}  // namespace trifold
