// Which families of transformers a model fits.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "config/commands/json.h"
#include "config/fields/layer_kinds.h"
#include "config/fields/layer_pattern.h"
#include "config/subjects/model_family.h"
#include "core/read_json.h"
#include "models/hugging_face/hugging_face_family.h"
#include "models/rotary_frequencies.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr size_t kShownFamilies = 3;

// Fields that only training reads, or that are not in a config.json.
constexpr const char* kFreeFields[] = {"model_digest",
                                       "freeze",
                                       "seq_length",
                                       "make_vocab_size_divisible_by",
                                       "bert_no_binary_head",
                                       "moe_router_bias_update_rate",
                                       "moe_router_load_balancing_type",
                                       "moe_aux_loss_coeff",
                                       "moe_z_loss_coeff",
                                       "moe_input_jitter_eps",
                                       "moe_router_force_load_balancing",
                                       "moe_expert_capacity_factor",
                                       "moe_token_drop_policy",
                                       "mtp_loss_scaling_factor"};
// Fields that are compared by the angles and factors that follow from them.
constexpr const char* kRopeFields[] = {"rotary_base",
                                       "rotary_percent",
                                       "use_rope_scaling",
                                       "rope_scaling_factor",
                                       "rope_scaling_low_freq_factor",
                                       "rope_scaling_high_freq_factor",
                                       "rope_scaling_original_positions",
                                       "rotary_seq_len_interpolation_factor",
                                       "rope_type",
                                       "rotary_scaling_factor",
                                       "original_max_position_embeddings",
                                       "beta_fast",
                                       "beta_slow",
                                       "mscale",
                                       "mscale_all_dim",
                                       "rotary_attention_factor",
                                       "rope_short_factor",
                                       "rope_long_factor",
                                       "rope_no_truncate"};
constexpr const char* kLatentFields[] = {"q_lora_rank",         "kv_lora_rank", "qk_head_dim",
                                         "qk_pos_emb_head_dim", "v_head_dim",   "latent_norm_epsilon"};

template <size_t N>
void erase(json& fields, const char* const (&names)[N]) {
  for (const char* name : names) fields.erase(name);
}

void describe_experts(json& fields, const ModelConfig& model) {
  if (!model.num_experts) {
    for (auto field = fields.begin(); field != fields.end();)
      field = field.key().starts_with("moe_") ? fields.erase(field) : std::next(field);
    return;
  }
  fields["moe_ffn_hidden_size"] = expert_width(model);
  fields["moe_layer_freq"] = expert_layers(model);
  if (count_expert_layers(model) == model.num_layers) fields.erase("ffn_hidden_size");
  const int64_t groups = model.moe_router_num_groups.value_or(1);
  fields["moe_router_num_groups"] = groups;
  fields["moe_router_group_topk"] = groups > 1 ? model.moe_router_group_topk.value_or(1) : 1;
  if (model.moe_router_score_function == RouterScore::Sigmoid) fields.erase("moe_router_pre_softmax");
}

// The model's fields, without the fields that have no effect, so that models that compute the same are equal. A field
// that is not named here counts as it is.
json described(const ModelConfig& trained) {
  const ModelConfig model = without_base_width(trained);
  json fields = to_json(model);
  erase(fields, kFreeFields);
  erase(fields, kRopeFields);
  describe_experts(fields, model);
  if (model.multi_latent_attention) {
    for (const char* name : {"kv_channels", "group_query_attention", "num_query_groups"}) fields.erase(name);
    fields["latent_norm_epsilon"] = model.latent_norm_epsilon.value_or(model.norm_epsilon);
  } else {
    erase(fields, kLatentFields);
    fields["kv_channels"] = head_width(model);
    fields["num_query_groups"] = key_heads(model);
    fields["group_query_attention"] = key_heads(model) != model.num_attention_heads;
  }
  if (!model.window_size || model.window_size->covers_all())
    for (const char* name : {"window_size", "window_attn_skip_freq", "window_rotary_base"})
      fields.erase(name);
  else
    fields["window_attn_skip_freq"] = window_layers(model);
  if (model.no_rope_freq)
    fields["no_rope_freq"] = parse_layer_pattern(*model.no_rope_freq, model.num_layers, EveryNth::Last);
  fields["softmax_scale"] = softmax_scale(model);
  fields["embedding_size"] = embedding_width(model);
  const bool biases = !model.disable_bias_linear;
  fields.erase("disable_bias_linear");
  fields["add_qkv_bias"] = biases || model.add_qkv_bias;
  fields["add_attention_out_bias"] = biases || model.add_attention_out_bias;
  fields["add_mlp_bias"] = biases || model.add_mlp_bias;
  fields["add_head_bias"] = family_of_model(model).dense_in_head && (biases || model.add_head_bias);
  if (model.swiglu || model.quick_geglu || model.squared_relu) fields.erase("gelu");
  return fields;
}

bool nearly_equal(double a, double b) { return std::abs(a - b) <= 1e-9 * std::abs(b); }

// Whether two models rotate samples of this length by the same angles.
bool same_rotation(ModelConfig a, ModelConfig b, int64_t length) {
  a.seq_length = b.seq_length = length;
  const std::vector<double> angles = rotary_frequencies(a), others = rotary_frequencies(b);
  return angles.size() == others.size() &&
         std::equal(angles.begin(), angles.end(), others.begin(), nearly_equal) &&
         nearly_equal(rotary_score_scale(a), rotary_score_scale(b)) &&
         nearly_equal(rotary_scale(a), rotary_scale(b)) &&
         nearly_equal(rotary_key_scale(a), rotary_key_scale(b));
}

// For samples of any length, of up to the positions of the original training and longer.
bool same_rotation(const ModelConfig& a, const ModelConfig& b) {
  const bool rope = a.position_embedding_type == PositionEmbedding::Rope;
  if (!rope || b.position_embedding_type != PositionEmbedding::Rope) return true;
  const int64_t longest = std::max(*a.max_position_embeddings, *b.max_position_embeddings);
  return same_rotation(a, b, 1) && same_rotation(a, b, longest);
}

// "--swiglu", "no --swiglu" or "--hidden-size 64".
std::string as_option(std::string name, const json& value) {
  std::replace(name.begin(), name.end(), '_', '-');
  if (value.is_null() || value == false) return "no --" + name;
  if (value == true) return "--" + name;
  return fmt::format("--{} {}", name, value.is_string() ? value.get<std::string>() : json_text(value));
}

// What the model would need for the family; empty: it fits.
std::vector<std::string> needs_of(const HuggingFaceFamily& family, const ModelConfig& model) {
  std::vector<std::string> needs = family.missing(model);
  if (!needs.empty()) return needs;
  ModelConfig again;
  try {
    again = from_hugging_face(to_hugging_face(model, family), family.name);
  } catch (const Error& error) {
    return {fmt::format("another config.json ({})", error.what())};
  }
  const json wanted = described(model), written = described(again);
  for (const auto& [name, value] : wanted.items()) {
    const json other = written.value(name, json());
    if (other != value) needs.push_back(as_option(name, other));
  }
  if (!same_rotation(again, model)) needs.emplace_back("another rotation of --position-embedding-type rope");
  return needs;
}

struct Candidate {
  const HuggingFaceFamily* family;
  std::vector<std::string> needs;
};

}  // namespace

std::span<const HuggingFaceFamily* const> hugging_face_families() {
  static const HuggingFaceFamily* const kFamilies[] = {
#define FAMILY(name) &name##_family(),
#include "models/hugging_face/families.inc"
#undef FAMILY
  };
  return kFamilies;
}

std::string names_of_families() {
  std::vector<std::string> types;
  for (const HuggingFaceFamily* family : hugging_face_families()) types.emplace_back(family->type);
  const std::string last = types.back();
  types.pop_back();
  return fmt::format("{} and {}", fmt::join(types, ", "), last);
}

const HuggingFaceFamily& family_for(const ModelConfig& model, const std::optional<std::string>& wanted,
                                    const std::optional<std::string>& former) {
  std::vector<Candidate> candidates;
  bool known = false;
  for (const HuggingFaceFamily* family : hugging_face_families()) {
    known = known || family->type == wanted;
    if (family->model == model.model_type && (!wanted || family->type == wanted))
      candidates.push_back({family, needs_of(*family, model)});
  }
  if (wanted && !known)
    bad_input("--hugging-face-family {} is not known; {} are supported", *wanted, names_of_families());
  if (candidates.empty())
    bad_input("{} has no models of --model-type {}", wanted ? *wanted : "transformers",
              to_json(model).at("model_type").get<std::string>());
  const auto came_from = std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& candidate) {
    return candidate.family->type == former && candidate.needs.empty();
  });
  if (came_from != candidates.end()) return *came_from->family;
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const Candidate& a, const Candidate& b) { return a.needs.size() < b.needs.size(); });
  if (candidates.front().needs.empty()) return *candidates.front().family;
  candidates.resize(std::min(candidates.size(), kShownFamilies));
  std::string text;
  for (const Candidate& candidate : candidates)
    text += fmt::format("\n  {}: {}", candidate.family->name, fmt::join(candidate.needs, ", "));
  bad_input("{}{}",
            wanted
                ? fmt::format("--hugging-face-family {} has no model like this one; it would need", *wanted)
                : "transformers has no model like this one; the nearest would need",
            text);
}

}  // namespace trifold
