// Modules that predict further tokens, as the files of DeepSeek-V3, GLM-4-MoE and Kimi-K2 hold them.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>

#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

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

}  // namespace

void read_modules(ConfigReader& from, ModelConfig& model) {
  model.mtp_num_layers = std::min(from.size("num_nextn_predict_layers"), kMostPredictionModules);
}

void write_modules(nlohmann::json& config, const ModelConfig& model) {
  config["num_nextn_predict_layers"] = model.mtp_num_layers;
}

std::vector<TensorNames::Entry> module_names() {
  return {{"embedding_norm.gain", {"enorm.weight"}},
          {"hidden_norm.gain", {"hnorm.weight"}},
          {"projection.weight", {"eh_proj.weight"}},
          {"final_norm.gain", {"shared_head.norm.weight"}}};
}

bool is_in_later_layer(const std::string& theirs, const ModelConfig& model) {
  return layer_of(theirs).value_or(-1) >= model.num_layers + model.mtp_num_layers;
}

std::span<const ModuleCopy> module_copies() {
  static constexpr ModuleCopy kCopies[] = {{"embed_tokens.weight", false}, {"shared_head.head.weight", true}};
  return kCopies;
}

bool is_module_copy(const std::string& theirs, const ModelConfig& model) {
  const int64_t layer = layer_of(theirs).value_or(-1);
  const auto copies = module_copies();
  return layer >= model.num_layers && layer < model.num_layers + model.mtp_num_layers &&
         std::any_of(copies.begin(), copies.end(),
                     [&](const ModuleCopy& copy) { return theirs.ends_with(std::string(".") + copy.name); });
}

}  // namespace trifold
