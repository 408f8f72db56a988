#include "config/config.h"

namespace trifold {

int64_t head_width(const ModelConfig& config) {
  return config.kv_channels.value_or(config.hidden_size / config.num_attention_heads);
}

int64_t key_heads(const ModelConfig& config) {
  return config.group_query_attention ? config.num_query_groups : config.num_attention_heads;
}

}  // namespace trifold
