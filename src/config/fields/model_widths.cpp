#include <algorithm>
#include <cmath>

#include "config/fields/config.h"
#include "config/fields/layer_pattern.h"

namespace trifold {

int64_t head_width(const ModelConfig& config) {
  if (config.multi_latent_attention) return std::max(key_width(config), config.v_head_dim);
  return config.kv_channels.value_or(config.hidden_size / config.num_attention_heads);
}

int64_t key_width(const ModelConfig& config) {
  return config.multi_latent_attention ? config.qk_head_dim + config.qk_pos_emb_head_dim : head_width(config);
}

int64_t value_width(const ModelConfig& config) {
  return config.multi_latent_attention ? config.v_head_dim : head_width(config);
}

int64_t rotated_width(const ModelConfig& config) {
  if (config.multi_latent_attention) return config.qk_pos_emb_head_dim;
  return static_cast<int64_t>(static_cast<double>(head_width(config)) * config.rotary_percent);
}

int64_t key_heads(const ModelConfig& config) {
  return config.group_query_attention ? config.num_query_groups : config.num_attention_heads;
}

// Three matrices of 8/3 of the width have the size of two of four times the width (Megatron-LM's rule).
int64_t inner_width(const ModelConfig& config) {
  if (config.ffn_hidden_size) return *config.ffn_hidden_size;
  if (!has_gate(config)) return 4 * config.hidden_size;
  return std::max<int64_t>(64, config.hidden_size * 8 / 3 / 64 * 64);
}

double width_ratio(const ModelConfig& config) {
  if (!config.mup_base_hidden_size) return 1;
  return static_cast<double>(config.hidden_size) / static_cast<double>(*config.mup_base_hidden_size);
}

// Products of queries and keys that have learned to agree grow with the width of a head, products of random ones only
// with its root. Scores are therefore divided by the width, times a constant that changes nothing at the base width.
ModelConfig without_base_width(ModelConfig config) {
  config.logits_scaling *= width_ratio(config);
  if (config.mup_base_head_dim)
    config.softmax_scale =
        std::sqrt(static_cast<double>(*config.mup_base_head_dim)) / static_cast<double>(key_width(config));
  config.mup_base_hidden_size.reset();
  config.mup_base_head_dim.reset();
  return config;
}

int64_t expert_width(const ModelConfig& config) {
  return config.moe_ffn_hidden_size.value_or(inner_width(config));
}

std::vector<bool> expert_layers(const ModelConfig& config) {
  if (!config.num_experts) return std::vector<bool>(static_cast<size_t>(config.num_layers), false);
  return parse_layer_pattern(config.moe_layer_freq, config.num_layers);
}

int64_t count_expert_layers(const ModelConfig& config) {
  const std::vector<bool> layers = expert_layers(config);
  return std::count(layers.begin(), layers.end(), true);
}

int64_t count_expert_modules(const ModelConfig& config) {
  const std::vector<bool> layers = expert_layers(config);
  return !layers.empty() && layers.back() ? config.mtp_num_layers : 0;
}

}  // namespace trifold
