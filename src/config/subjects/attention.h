// Attention: positions, heads, and latent vectors in place of keys and values.
#pragma once

#include "config/fields/config.h"
#include "config/options/problems.h"

namespace trifold {

void add_attention(OptionTable& table, ModelConfig& model);  // starts no group
void check_attention(const ModelConfig& model, Problems& problems);

}  // namespace trifold
