#include "config/fields/adapter_targets.h"

#include <fnmatch.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace trifold {

namespace {

constexpr std::string_view kBlocks = "block.";  // layers of modules for further tokens have other names

// Names in Hugging Face's models, and ours.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"q_proj", "query"},
    {"k_proj", "key"},
    {"v_proj", "value"},
    {"o_proj", "attention.out"},
    {"c_proj", "attention.out"},
    {"c_proj", "mlp.down"},
    {"c_attn", "qkv"},
    {"c_fc", "mlp.up"},
    {"gate_proj", "gate"},
    {"up_proj", "mlp.up"},
    {"down_proj", "mlp.down"},
    {"gate_up_proj", "gate_up"},
    {"q_a_proj", "query_down"},
    {"q_b_proj", "query_up"},
    {"kv_a_proj_with_mqa", "key_value_down"},
    {"kv_b_proj", "key_value_up"}};

bool ends_with_name(std::string_view module, std::string_view name) {
  if (module.size() <= name.size()) return module == name;
  return module.ends_with(name) && module[module.size() - name.size() - 1] == '.';
}

}  // namespace

double adapter_scale(const AdapterConfig& adapters) {
  const auto rank = static_cast<double>(*adapters.lora_rank);
  const double alpha = adapters.lora_alpha.value_or(rank);
  return adapters.lora_scaling == LoraScaling::RankStabilized ? alpha / std::sqrt(rank) : alpha / rank;
}

LinearModules modules_of_linear(const std::string& layer, int64_t groups) {
  if (groups == 1) return {layer, layer, {layer}};
  const size_t dot = layer.rfind('.') + 1;
  const std::string prefix = layer.substr(0, dot);
  const std::string last = layer.substr(dot);
  if (last == "qkv") return {layer, layer, {prefix + "query", prefix + "key", prefix + "value"}};
  if (last == "key_value") return {layer, layer, {prefix + "key", prefix + "value"}};
  return {layer, prefix + "gate_" + last, {prefix + "gate", layer}};
}

bool names_module(const std::string& pattern, std::string_view module) {
  if (ends_with_name(module, pattern) || fnmatch(pattern.c_str(), std::string(module).c_str(), 0) == 0)
    return true;
  return std::any_of(std::begin(kOtherNames), std::end(kOtherNames), [&](const auto& names) {
    return names.first == pattern && ends_with_name(module, names.second);
  });
}

std::vector<std::string> adapted_modules(const AdapterConfig& adapters, const LinearModules& layer) {
  if (!adapters.lora_rank || !layer.layer.starts_with(kBlocks)) return {};
  const std::vector<std::string>& patterns = adapters.lora_targets;
  if (patterns.empty()) return layer.parts;
  const auto targeted = [&](const std::string& module) {
    return std::any_of(patterns.begin(), patterns.end(),
                       [&](const std::string& pattern) { return names_module(pattern, module); });
  };
  std::vector<std::string> modules;
  std::copy_if(layer.parts.begin(), layer.parts.end(), std::back_inserter(modules), targeted);
  if (modules.empty() && targeted(layer.whole)) modules.push_back(layer.whole);
  return modules;
}

std::vector<LinearModules> linear_modules(const ModelConfig& model) {
  std::vector<LinearModules> modules;
  const std::vector<bool> experts = model.num_experts ? expert_layers(model) : std::vector<bool>();
  const int64_t gates = has_gate(model) ? 2 : 1;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) {
    const std::string block = std::string(kBlocks) + std::to_string(layer);
    if (model.multi_latent_attention) {
      std::vector<std::string> parts{".key_value_down", ".key_value_up"};
      if (model.q_lora_rank)
        parts.insert(parts.begin(), {".query_down", ".query_up"});
      else
        parts.insert(parts.begin(), ".query");
      for (const std::string& part : parts)
        modules.push_back(modules_of_linear(fmt::format("{}.attention{}", block, part), 1));
    } else if (key_heads(model) == model.num_attention_heads) {
      modules.push_back(modules_of_linear(block + ".attention.qkv", 3));
    } else {
      modules.push_back(modules_of_linear(block + ".attention.query", 1));
      modules.push_back(modules_of_linear(block + ".attention.key_value", 2));
    }
    modules.push_back(modules_of_linear(block + ".attention.out", 1));
    const bool routed = model.num_experts && experts[static_cast<size_t>(layer)];
    if (routed && !model.moe_shared_expert_intermediate_size) continue;
    const std::string mlp = block + (routed ? ".mlp.shared" : ".mlp");
    modules.push_back(modules_of_linear(mlp + ".up", gates));
    modules.push_back(modules_of_linear(mlp + ".down", 1));
  }
  return modules;
}

std::vector<std::vector<std::string>> modules_of_layers(const ModelConfig& model) {
  if (!model.adapters.lora_rank || model.adapters.lora_targets.empty()) return {};
  std::vector<std::vector<std::string>> layers(static_cast<size_t>(model.num_layers));
  for (const LinearModules& linear : linear_modules(model)) {
    const size_t end = linear.layer.find('.', kBlocks.size());
    const auto layer = std::stoul(linear.layer.substr(kBlocks.size(), end - kBlocks.size()));
    for (const std::string& module : adapted_modules(model.adapters, linear))
      layers[layer].push_back(module.substr(end));
  }
  return layers;
}

AdapterConfig with_modules(AdapterConfig adapters, const std::vector<std::string>& modules) {
  constexpr const char* kNoModule = "none";  // without any pattern all modules would have adapters
  adapters.lora_targets.clear();
  for (const std::string& module : modules)
    adapters.lora_targets.push_back(std::string(kBlocks) + "*" + module);
  if (modules.empty()) adapters.lora_targets.emplace_back(kNoModule);
  return adapters;
}

}  // namespace trifold
