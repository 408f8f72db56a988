#include <algorithm>

#include "config/fields/config.h"

namespace trifold {

int64_t head_width(const ModelConfig& config) {
  return config.kv_channels.value_or(config.hidden_size / config.num_attention_heads);
}

int64_t key_heads(const ModelConfig& config) {
  return config.group_query_attention ? config.num_query_groups : config.num_attention_heads;
}

// Three matrices of 8/3 of the width have the size of two of four times the width (Megatron-LM's rule).
int64_t inner_width(const ModelConfig& config) {
  if (config.ffn_hidden_size) return *config.ffn_hidden_size;
  if (!config.swiglu) return 4 * config.hidden_size;
  return std::max<int64_t>(64, config.hidden_size * 8 / 3 / 64 * 64);
}

int64_t expert_width(const ModelConfig& config) {
  return config.moe_ffn_hidden_size.value_or(inner_width(config));
}

bool has_experts(const ModelConfig& config, int64_t /*layer*/) { return config.num_experts.has_value(); }

}  // namespace trifold
