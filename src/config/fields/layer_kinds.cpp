#include "config/fields/layer_kinds.h"

#include <algorithm>
#include <map>

namespace trifold {

namespace {

// The choices that differ between layers.
struct LayerTraits {
  bool experts = false;
  auto operator<=>(const LayerTraits&) const = default;
};

ModelConfig with_traits(ModelConfig config, const LayerTraits& traits) {
  config.moe_layer_freq = "1";
  if (!traits.experts) {
    config.num_experts.reset();
    config.moe_shared_expert_intermediate_size.reset();
    config.moe_shared_expert_gate = false;
  }
  return config;
}

// The traits that only some of the layers have, in words.
std::string name_of(const ModelConfig& config, const LayerTraits& traits) {
  return config.num_experts && !traits.experts ? "layer without experts" : "layer";
}

}  // namespace

LayerKinds layer_kinds(const ModelConfig& config) {
  const std::vector<bool> experts = expert_layers(config);
  std::map<LayerTraits, size_t> found;  // to the index in `kinds`
  std::vector<LayerTraits> traits;      // one for each layer
  for (const bool with_experts : experts) {
    traits.push_back({with_experts});
    found.try_emplace(traits.back());
  }
  if (found.empty()) found.try_emplace({config.num_experts.has_value()});
  LayerKinds result;
  for (auto& [kind, index] : found) {
    index = result.kinds.size();
    result.kinds.push_back({with_traits(config, kind), name_of(config, kind)});
  }
  for (const LayerTraits& layer : traits) result.of_layer.push_back(found[layer]);
  return result;
}

size_t count_layer_kinds(const ModelConfig& config) { return layer_kinds(config).kinds.size(); }

ModelConfig with_layers_of_kind(const ModelConfig& config, size_t kind) {
  return layer_kinds(config).kinds.at(kind).model;
}

}  // namespace trifold
