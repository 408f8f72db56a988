#include "config/fields/layer_kinds.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/fields/adapter_targets.h"
#include "config/fields/layer_pattern.h"

namespace trifold {

namespace {

// The choices that may differ between layers.
struct LayerTraits {
  bool experts = false;
  bool rotates = false;
  bool window = false;
  bool bare = false;                      // attention has no norm of its input
  std::vector<std::string> adapted = {};  // see modules_of_layers
  auto operator<=>(const LayerTraits&) const = default;
};

std::vector<LayerTraits> traits_of_layers(const ModelConfig& config) {
  const auto layers = static_cast<size_t>(config.num_layers);
  const bool rope = config.position_embedding_type == PositionEmbedding::Rope;
  const std::vector<bool> experts = expert_layers(config), windows = window_layers(config);
  const std::vector<bool> still =
      rope && config.no_rope_freq
          ? parse_layer_pattern(*config.no_rope_freq, config.num_layers, EveryNth::Last)
          : std::vector<bool>(layers, false);
  const std::vector<std::vector<std::string>> adapted = modules_of_layers(config);
  std::vector<LayerTraits> traits;
  for (size_t layer = 0; layer < layers; ++layer)
    traits.push_back({experts[layer], rope && !still[layer], windows[layer],
                      config.no_first_norm && layer == 0,
                      adapted.empty() ? std::vector<std::string>() : adapted[layer]});
  return traits;
}

ModelConfig with_traits(ModelConfig config, const LayerTraits& traits) {
  if (config.adapters.lora_rank && !config.adapters.lora_targets.empty())
    config.adapters = with_modules(std::move(config.adapters), traits.adapted);
  config.moe_layer_freq = "1";
  config.window_attn_skip_freq.reset();
  config.no_rope_freq.reset();
  if (!traits.experts) {
    config.num_experts.reset();
    config.moe_shared_expert_intermediate_size.reset();
    config.moe_shared_expert_gate = false;
  }
  if (!traits.window) {
    config.window_size.reset();
  } else if (config.window_rotary_base) {
    config.rotary_base = *config.window_rotary_base;
    config.use_rope_scaling = false;
    config.rotary_seq_len_interpolation_factor = 1;
    config.rope_type = RopeType::Rope;
  }
  config.window_rotary_base.reset();
  config.no_first_norm = traits.bare;
  if (!traits.rotates && config.position_embedding_type == PositionEmbedding::Rope)
    config.position_embedding_type = PositionEmbedding::None;
  return config;
}

using ModuleSets = std::set<std::vector<std::string>>;

// What the layers of a model have in common.
class CommonTraits {
 public:
  LayerTraits some{}, every{true, true, true, true};  // what some layer has, and every one

  void add(const LayerTraits& layer) {
    some = {some.experts || layer.experts, some.rotates || layer.rotates, some.window || layer.window,
            some.bare || layer.bare};
    every = {every.experts && layer.experts, every.rotates && layer.rotates, every.window && layer.window,
             every.bare && layer.bare};
    adapted_[without_adapters(layer)].insert(layer.adapted);
  }
  // The sets of modules with adapters in layers that are like `layer` otherwise.
  const ModuleSets& of(const LayerTraits& layer) const { return adapted_.at(without_adapters(layer)); }

 private:
  static LayerTraits without_adapters(LayerTraits layer) {
    layer.adapted.clear();
    return layer;
  }

  std::map<LayerTraits, ModuleSets> adapted_;
};

std::string text_of_adapters(const std::vector<std::string>& modules, const ModuleSets& all) {
  if (modules.empty()) return "without adapters";
  if (all.size() == 2 && all.begin()->empty()) return "with adapters";
  std::vector<std::string_view> names;
  for (const std::string& module : modules) names.push_back(std::string_view(module).substr(1));
  return fmt::format("with adapters of {}", fmt::join(names, " and "));
}

// The traits in which the layers of the model differ, in words.
std::string name_of(const ModelConfig& config, const LayerTraits& traits, const CommonTraits& all) {
  const LayerTraits &some = all.some, &every = all.every;
  std::vector<std::string> words;
  if (some.experts && !every.experts && !traits.experts) words.emplace_back("without experts");
  if (some.window && !every.window && traits.window)
    words.push_back(fmt::format("with a window of {}", config.window_size->text()));
  if (some.rotates && !every.rotates && !traits.rotates) words.emplace_back("without rope");
  if (some.bare && !every.bare && traits.bare) words.emplace_back("without a norm before attention");
  if (all.of(traits).size() > 1) words.push_back(text_of_adapters(traits.adapted, all.of(traits)));
  return words.empty() ? "layer" : fmt::format("layer {}", fmt::join(words, ", "));
}

}  // namespace

std::vector<bool> window_layers(const ModelConfig& config) {
  const auto layers = static_cast<size_t>(config.num_layers);
  if (!config.window_size || config.window_size->covers_all()) return std::vector<bool>(layers, false);
  if (!config.window_attn_skip_freq) return std::vector<bool>(layers, true);
  return parse_layer_pattern(*config.window_attn_skip_freq, config.num_layers, EveryNth::AllButLast);
}

LayerKinds layer_kinds(const ModelConfig& config) {
  const std::vector<LayerTraits> layers = traits_of_layers(config);
  std::map<LayerTraits, size_t> found;  // to the index in `kinds`
  CommonTraits all;
  for (const LayerTraits& traits : layers) {
    found.try_emplace(traits);
    all.add(traits);
  }
  if (layers.empty()) return {{{config, "layer"}}, {}};
  LayerKinds result;
  for (auto& [traits, index] : found) {
    index = result.kinds.size();
    result.kinds.push_back({with_traits(config, traits), name_of(config, traits, all)});
  }
  for (const LayerTraits& traits : layers) result.of_layer.push_back(found[traits]);
  return result;
}

size_t last_layer_kind(const LayerKinds& layers) {
  return layers.of_layer.empty() ? 0 : layers.of_layer.back();
}

ModelConfig model_of_last_layer(const ModelConfig& config) {
  const LayerKinds layers = layer_kinds(config);
  return layers.kinds[last_layer_kind(layers)].model;
}

}  // namespace trifold
