// DeepSeek-V3: multi-head latent attention, some dense layers, then experts chosen by sigmoids with a selection bias.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/read_json.h"
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

// The norms of latent vectors have this in transformers, whatever 'rms_norm_eps' is.
constexpr double kNormEpsilon = 1e-6;
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
        field({"attention_dropout"}, 0.0), field({"num_nextn_predict_layers", "num_mtp_layers"}, 1),
        // Derived from others.
        field({"head_dim"}, nullptr).beyond_class(), field({"qk_head_dim"}, nullptr).beyond_class(),
        // The authors' own code.
        fixed("scoring_func", "sigmoid").beyond_class(), fixed("topk_method", "noaux_tc").beyond_class(),
        fixed("moe_layer_freq", 1).beyond_class(), field({"aux_loss_alpha"}, 0.0).beyond_class(),
        field({"seq_aux"}, true).beyond_class(), unused({"ep_size"}).beyond_class(),
        field({"layer_types"}, nullptr).beyond_class(), unused({"sliding_window"}).beyond_class(),
        unused({"use_sliding_window"}).beyond_class(), unused({"max_window_layers"}).beyond_class()},
       rope_fields({})});
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

ModelConfig read_deepseek(ConfigReader& from) {
  ModelConfig model = read_decoder(from);
  read_layer_types(from, model);
  read_latent(from, model);
  read_rope(from, model);
  read_sigmoid_experts(from, model);
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
  write_sigmoid_experts(config, model);
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
      {{model.multi_latent_attention, "--multi-latent-attention"},
       {model.qk_layernorm, "--qk-layernorm"},
       {model.normalization == Normalization::RmsNorm, "--normalization RMSNorm"},
       {model.latent_norm_epsilon.value_or(model.norm_epsilon) == kNormEpsilon, "--latent-norm-epsilon 1e-6"},
       {model.swiglu, "--swiglu"},
       {model.hidden_dropout == 0, "--hidden-dropout 0"}});
  return sigmoid_experts_miss(model, std::move(missing));
}

bool deepseek_ignores(const std::string& theirs, const ModelConfig& model) {
  return is_in_later_layer(theirs, model) || is_module_copy(theirs, model) ||
         llama_family().ignores(theirs, model);
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
      {"attention.key_value_up.weight", {"self_attn.kv_b_proj.weight"}}};
  for (const TensorNames::Entry& entry : entries) names.in_block.push_back(entry);
  for (TensorNames::Entry& entry : sigmoid_expert_names()) names.in_block.push_back(std::move(entry));
  names.in_module = module_names();
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
                                         .skips = is_in_later_layer};
  return kFamily;
}

}  // namespace trifold
