#include "models/hugging_face/hugging_face_family.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/fields/layer_kinds.h"
#include "core/read_json.h"

namespace trifold {

using nlohmann::json;

ModelConfig read_sizes(ConfigReader& from) {
  ModelConfig model;
  model.num_layers = from.size("num_hidden_layers");
  constexpr int64_t kMostLayers = 1 << 20;
  if (model.num_layers > kMostLayers) {
    from.problem(fmt::format("'{}' is {}; at most {} are supported", from.name_of("num_hidden_layers"),
                             model.num_layers, kMostLayers));
    model.num_layers = 0;
  }
  model.hidden_size = from.size("hidden_size");
  model.num_attention_heads = from.size("num_attention_heads");
  model.ffn_hidden_size = from.size("intermediate_size");
  model.max_position_embeddings = from.size("max_position_embeddings");
  model.vocab_size = from.size("vocab_size");
  model.init_method_std = from.number("initializer_range");
  return model;
}

json sizes_json(const ModelConfig& model) {
  return {{"num_hidden_layers", model.num_layers},
          {"hidden_size", model.hidden_size},
          {"num_attention_heads", model.num_attention_heads},
          {"intermediate_size", *model.ffn_hidden_size},
          {"max_position_embeddings", *model.max_position_embeddings}};
}

int64_t read_choices(ConfigReader& from, const char* experts, int64_t count) {
  const int64_t choices = from.size("num_experts_per_tok");
  if (count > 0 && (choices < 1 || choices > count))
    from.problem(fmt::format("'num_experts_per_tok' is {}; a number from 1 to '{}', {}, is needed", choices,
                             from.name_of(experts), count));
  return choices;
}

// Older files say "attention" for full attention.
void read_layer_types(ConfigReader& from, const ModelConfig& model) {
  const json& types = from.value("layer_types");
  if (types.is_null()) return;
  const auto full = [](const json& type) { return type == "full_attention" || type == "attention"; };
  if (!types.is_array() || !std::all_of(types.begin(), types.end(), full))
    from.problem(fmt::format("'layer_types' is {}; only layers of \"full_attention\" are supported",
                             printable_json(types)));
  else if (static_cast<int64_t>(types.size()) != model.num_layers)
    from.problem(fmt::format("'layer_types' has {} entries for {} layers", types.size(), model.num_layers));
}

void read_windows(ConfigReader& from, ModelConfig& model, std::optional<int64_t> window,
                  std::vector<bool> windows) {
  const json types = from.knows("layer_types") ? from.value("layer_types") : json();
  if (!types.is_null()) {
    const auto known = [](const json& type) {
      return type == "full_attention" || type == "attention" || type == "sliding_attention";
    };
    if (!types.is_array() || !std::all_of(types.begin(), types.end(), known))
      return from.problem(fmt::format(
          "'layer_types' is {}; only layers of \"full_attention\" and \"sliding_attention\" are supported",
          printable_json(types)));
    if (static_cast<int64_t>(types.size()) != model.num_layers)
      return from.problem(
          fmt::format("'layer_types' has {} entries for {} layers", types.size(), model.num_layers));
    windows.clear();
    for (const json& type : types) windows.push_back(type == "sliding_attention");
  }
  const auto count = std::count(windows.begin(), windows.end(), true);
  if (count == 0) return model.window_rotary_base.reset();
  if (!window && from.knows("use_sliding_window") && !from.flag("use_sliding_window"))
    return from.problem(fmt::format(
        "'layer_types' gives {} layers a window, but 'use_sliding_window' is false; make it true, or remove the list",
        count));
  if (!window || *window < 1)
    return from.problem(
        fmt::format("'sliding_window' is {}, but {} layers have a window; give a number of positions",
                    printable_json(from.value("sliding_window")), count));
  model.window_size = WindowSize{*window - 1, 0};
  if (count == std::ssize(windows)) return;
  std::vector<int> entries(windows.begin(), windows.end());
  model.window_attn_skip_freq = fmt::format("[{}]", fmt::join(entries, ","));
}

std::vector<bool> all_but_every(int64_t each, const ModelConfig& model) {
  std::vector<bool> layers;
  for (int64_t number = 1; number <= model.num_layers; ++number) layers.push_back(number % each != 0);
  return layers;
}

std::vector<bool> read_all_but_every(ConfigReader& from, const ModelConfig& model, const char* name) {
  const int64_t each = from.size(name);
  if (each < 1)
    from.problem(
        fmt::format("'{}' is {}; a number from 1 is needed", name, printable_json(from.value(name))));
  return all_but_every(std::max<int64_t>(1, each), model);
}

json window_json(const ModelConfig& model) {
  const std::vector<bool> windows = window_layers(model);
  const bool any = std::find(windows.begin(), windows.end(), true) != windows.end();
  return any ? json(model.window_size->left + 1) : json();
}

json layer_types_json(const ModelConfig& model) {
  json types = json::array();
  for (const bool window : window_layers(model))
    types.push_back(window ? "sliding_attention" : "full_attention");
  return types;
}

void read_one_window(ConfigReader& from, ModelConfig& model, bool used) {
  const auto window = used ? from.size_or_null("sliding_window") : std::nullopt;
  if (!used) from.value("sliding_window");
  const std::vector<bool> all(static_cast<size_t>(model.num_layers), window.has_value());
  read_windows(from, model, window, all);
  const bool in_all = model.window_size && !model.window_attn_skip_freq;
  if (window && *window >= 1 && !in_all && from.knows("layer_types") && from.has("layer_types"))
    from.problem("'layer_types': all layers have the window of 'sliding_window'; remove the list");
}

void read_gelu(ConfigReader& from, const char* key, ModelConfig& model, const char* others) {
  const json& kind = from.value(key);
  if (kind == "gelu")
    model.gelu = GeluKind::Erf;
  else if (kind != "gelu_new" && kind != "gelu_pytorch_tanh")
    from.problem(
        fmt::format("'{}' is {}; only {}\"gelu_new\", \"gelu_pytorch_tanh\" and \"gelu\" are supported", key,
                    printable_json(kind), others));
}

const char* gelu_name(const ModelConfig& model) { return model.gelu == GeluKind::Erf ? "gelu" : "gelu_new"; }

std::vector<std::string> not_met(const std::vector<std::pair<bool, const char*>>& needs,
                                 std::vector<std::string> missing) {
  for (const auto& [met, what] : needs)
    if (!met) missing.emplace_back(what);
  return missing;
}

std::vector<std::string> decoder_misses(const ModelConfig& model, bool experts, bool geglu) {
  return not_met(
      {{model.num_experts.has_value() == experts, experts ? "--num-experts" : "no --num-experts"},
       {model.normalization == Normalization::RmsNorm, "--normalization RMSNorm"},
       {!model.multi_latent_attention, "no --multi-latent-attention"},
       {model.position_embedding_type == PositionEmbedding::Rope, "--position-embedding-type rope"},
       {geglu ? model.geglu : model.swiglu, geglu ? "--geglu" : "--swiglu"},
       {model.hidden_dropout == 0, "--hidden-dropout 0"}});
}

}  // namespace trifold
