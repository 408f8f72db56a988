// The linear layers to which low-rank adapters are added (AdapterConfig), by name.
//
// A *module* is what one adapter belongs to: a linear layer, as block.3.mlp.down, or a part of a layer whose weight packs
// several, as block.3.attention.query. A packed weight may also have a single adapter for all its outputs, like the c_attn
// of Hugging Face's GPT-2: the module block.3.attention.qkv.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields/model_config.h"

namespace trifold {

// The modules of a linear layer with this name whose outputs are `groups` groups of equal width.
struct LinearModules {
  std::string layer;               // with the weight <layer>.weight
  std::string whole;               // for one adapter of all outputs
  std::vector<std::string> parts;  // one for each group; the same as `whole` if there is only one group
};
LinearModules modules_of_linear(const std::string& layer, int64_t groups);

// Whether a pattern names a module: by its whole name, by the end of it ("query", "attention.out"), with the wildcards of
// shells ("block.[0-3].*"), or by the name that Hugging Face's models give it ("q_proj").
bool names_module(const std::string& pattern, std::string_view module);

// The modules of a layer that have adapters: one for each targeted part, or the whole. Without --lora-targets, all parts.
// None of a module that predicts further tokens.
std::vector<std::string> adapted_modules(const AdapterConfig& adapters, const LinearModules& layer);

// The modules of all linear layers of a model that can have adapters.
std::vector<LinearModules> linear_modules(const ModelConfig& model);

// [layer] The modules of each layer that have adapters, as the ends of their names (".attention.query"). Empty: --lora-targets
// does not distinguish layers.
std::vector<std::vector<std::string>> modules_of_layers(const ModelConfig& model);

// The adapters with which every layer of a model adapts `modules`, given as above.
AdapterConfig with_modules(AdapterConfig adapters, const std::vector<std::string>& modules);

}  // namespace trifold
