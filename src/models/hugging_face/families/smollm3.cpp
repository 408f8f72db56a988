// SmolLM3: a Llama in which rope rotates nothing in some layers, which may have windows.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "config/fields/layer_pattern.h"
#include "core/read_json.h"
#include "models/hugging_face/hugging_face_family.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr RopeStyle kSmolLm3Rope{.base = 2e6};

ConfigFields smollm3_fields() {
  return joined({{field({"vocab_size"}, 128256),
                  field({"hidden_size"}, 2048),
                  field({"intermediate_size"}, 11008),
                  field({"num_hidden_layers"}, 36),
                  field({"num_attention_heads"}, 16),
                  field({"num_key_value_heads"}, 4).or_null(),
                  fixed("hidden_act", "silu", {"swish"}),
                  field({"max_position_embeddings"}, 32768),
                  field({"initializer_range"}, 0.02),
                  field({"rms_norm_eps"}, 1e-6),
                  unused({"use_cache"}, true),
                  unused({"pad_token_id"}, 128004),
                  unused({"bos_token_id"}, 128000),
                  unused({"eos_token_id"}, 128001),
                  field({"use_sliding_window"}, false),
                  field({"sliding_window"}, nullptr),
                  field({"no_rope_layers"}, nullptr),
                  field({"no_rope_layer_interval"}, 4),
                  field({"layer_types"}, nullptr),
                  field({"attention_bias"}, false),
                  field({"attention_dropout"}, 0.0),
                  field({"mlp_bias"}, false),
                  field({"tie_word_embeddings"}, true),
                  field({"head_dim"}, nullptr).beyond_class(),
                  unused({"max_window_layers"}).beyond_class(),
                  unused({"pretraining_tp"}).beyond_class()},
                 rope_fields(kSmolLm3Rope)});
}

// For each layer, whether rope rotates its queries and keys. The list 'no_rope_layers' has 1 for these layers.
std::vector<bool> read_rotating(ConfigReader& from, const ModelConfig& model) {
  const json& list = from.value("no_rope_layers");
  if (list.is_null()) return read_all_but_every(from, model, "no_rope_layer_interval");
  from.value("no_rope_layer_interval");
  const auto known = [](const json& entry) { return entry == 0 || entry == 1; };
  std::vector<bool> rotating(static_cast<size_t>(model.num_layers), true);
  if (!list.is_array() || !std::all_of(list.begin(), list.end(), known))
    from.problem(
        fmt::format("'no_rope_layers' is {}; a list of 1 (rope) and 0 is needed", printable_json(list)));
  else if (std::ssize(list) < model.num_layers)
    from.problem(fmt::format("'no_rope_layers' has {} entries for {} layers", list.size(), model.num_layers));
  else
    for (size_t layer = 0; layer < rotating.size(); ++layer) rotating[layer] = list[layer] == 1;
  return rotating;
}

ModelConfig read_smollm3(ConfigReader& from) {
  ModelConfig model = read_decoder(from);
  read_head_width(from, model);
  read_biases(from, model);
  read_rope(from, model, kSmolLm3Rope);
  std::vector<bool> no_rope = read_rotating(from, model);
  no_rope.flip();
  if (std::find(no_rope.begin(), no_rope.end(), true) != no_rope.end())
    model.no_rope_freq =
        fmt::format("[{}]", fmt::join(std::vector<int>(no_rope.begin(), no_rope.end()), ","));
  const auto window = from.size_or_null("sliding_window");
  const bool used = from.flag("use_sliding_window") && window;
  read_windows(from, model, used ? window : std::nullopt,
               used ? no_rope : std::vector<bool>(static_cast<size_t>(model.num_layers), false));
  return model;
}

json smollm3_json(const ModelConfig& model) {
  json config = llama_json(model);
  write_head_width_if_odd(config, model);
  const json window = window_json(model);
  config.update({{"architectures", {"SmolLM3ForCausalLM"}},
                 {"model_type", "smollm3"},
                 {"use_sliding_window", !window.is_null()},
                 {"sliding_window", window},
                 {"layer_types", layer_types_json(model)}});
  std::vector<bool> no_rope(static_cast<size_t>(model.num_layers), false);
  if (model.no_rope_freq)
    no_rope = parse_layer_pattern(*model.no_rope_freq, model.num_layers, EveryNth::Last);
  json rotating = json::array();
  for (const bool without : no_rope) rotating.push_back(without ? 0 : 1);
  config["no_rope_layers"] = std::move(rotating);
  return config;
}

}  // namespace

const HuggingFaceFamily& smollm3_family() {
  static const HuggingFaceFamily kFamily{.name = "SmolLM3",
                                         .type = "smollm3",
                                         .fields = smollm3_fields(),
                                         .names = llama_family().names,
                                         .read = read_smollm3,
                                         .write = smollm3_json,
                                         .missing = llama_family().missing,
                                         .ignores = llama_family().ignores,
                                         .tied = tied_head,
                                         .auto_class = llama_family().auto_class};
  return kFamily;
}

}  // namespace trifold
