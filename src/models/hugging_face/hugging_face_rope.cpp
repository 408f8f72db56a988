// Rotary positions in a config.json. Versions of transformers from 5 on keep everything in 'rope_parameters', older
// ones in 'rope_theta' and 'rope_scaling'; files have any mixture of these.
#include <fmt/format.h>

#include <cmath>

#include "core/read_json.h"
#include "models/hugging_face/hugging_face_family.h"
#include "models/rotary_frequencies.h"

namespace trifold {

namespace {

using nlohmann::json;

constexpr double kMostFactor = 1e6;
constexpr double kMostPositions = 1e9;

// What Python takes for true.
bool is_given(const json& value) {
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  return !value.is_null() && !value.empty() && value != false && value != 0;
}

// The value as a number; anything else, also null, is a problem.
double needed(ConfigReader& rope, const char* name, double low, double high) {
  if (!rope.has(name)) {
    rope.problem(fmt::format("'{}' is missing", name));
    return low;
  }
  const double value = rope.number(name);
  if (rope.value(name).is_number() && !(value >= low && value <= high))
    rope.problem(fmt::format("'{}' is {}; from {} to {} are possible", name, value, low, high));
  return value;
}

// The positions of the original training: a field of the file takes precedence over a field of the object.
int64_t original_positions(ConfigReader& from, ConfigReader& rope, const ModelConfig& model) {
  const char* name = "original_max_position_embeddings";
  const bool outside = from.has(name);
  if (!outside && !rope.has(name)) return *model.max_position_embeddings;
  const json& value = outside ? from.value(name) : rope.value(name);
  const double positions = value.is_number() ? value.get<double>() : 0;
  if (positions >= 1 && positions <= kMostPositions && positions == std::floor(positions))
    return static_cast<int64_t>(positions);
  (outside ? from : rope)
      .problem(fmt::format("'{}' is {}; a whole number from 1 to {} is needed", name, printable_json(value),
                           kMostPositions));
  return 1;
}

// Queries and keys are multiplied by 'attention_factor', or by the ratio of m('mscale') and m('mscale_all_dim') if
// neither is 0, or by m(1). Latent attention also multiplies scores by m('mscale_all_dim')^2 whenever that is given.
void read_growth(ConfigReader& rope, bool latent, ModelConfig& model) {
  const double mscale = rope.number_or_null("mscale").value_or(0);
  const double all = rope.number_or_null("mscale_all_dim").value_or(0);
  constexpr double kMost = 1e3;
  for (const char* name : {"mscale", "mscale_all_dim"})
    if (const auto value = rope.number_or_null(name); value && !(*value >= 0 && *value <= kMost))
      return rope.problem(fmt::format("'{}' is {}; from 0 to {} are possible", name, *value, kMost));
  const bool both = mscale != 0 && all != 0;
  const double standard = 0.1 * std::log(model.rotary_scaling_factor) + 1;
  if (both || latent) model.mscale_all_dim = all;
  if (both) model.mscale = mscale;
  const auto growth_at = [&](double coefficient) { return 1 + coefficient * (standard - 1); };
  const double follows = growth_at(model.mscale) / growth_at(model.mscale_all_dim);
  const double growth = rope.number_or_null("attention_factor").value_or(both ? follows : standard);
  if (!(growth > 0 && growth <= kMost))
    return rope.problem(
        fmt::format("'attention_factor' is {}; above 0 and up to {} are possible", growth, kMost));
  constexpr double kRounding = 1e-9;
  if (std::abs(growth - follows) <= kRounding * follows) return;
  model.rotary_attention_factor = growth;
  model.mscale = ModelConfig().mscale;
}

void read_yarn(ConfigReader& from, ConfigReader& rope, bool latent, ModelConfig& model) {
  model.rope_type = RopeType::Yarn;
  model.original_max_position_embeddings = original_positions(from, rope, model);
  const auto positions = static_cast<double>(*model.max_position_embeddings);
  const bool from_positions = rope.given("factor") && !rope.has("factor");
  model.rotary_scaling_factor = from_positions
                                    ? positions / static_cast<double>(model.original_max_position_embeddings)
                                    : needed(rope, "factor", 1, kMostFactor);
  if (from_positions && model.rotary_scaling_factor < 1)
    rope.problem(fmt::format(
        "'factor' is null and 'max_position_embeddings', {}, below 'original_max_position_embeddings', {}: "
        "give a factor of 1 or more",
        *model.max_position_embeddings, model.original_max_position_embeddings));
  const auto turns = [&](const char* name) {
    const json& value = rope.value(name);
    return is_given(value) ? rope.number(name)
                           : json(name == std::string_view("beta_fast") ? 32 : 1).get<double>();
  };
  model.beta_fast = turns("beta_fast");
  model.beta_slow = turns("beta_slow");
  if (!(model.beta_slow > 0 && model.beta_fast >= model.beta_slow && model.beta_fast <= kMostFactor))
    rope.problem(
        fmt::format("'beta_fast' is {} and 'beta_slow' {}; the latter must be above 0 and not the larger",
                    model.beta_fast, model.beta_slow));
  model.rope_no_truncate = !rope.flag("truncate");
  read_growth(rope, latent, model);
}

void read_llama3(ConfigReader& from, ConfigReader& rope, ModelConfig& model) {
  model.use_rope_scaling = true;
  model.rope_scaling_factor = needed(rope, "factor", 1, kMostFactor);
  model.rope_scaling_original_positions = original_positions(from, rope, model);
  constexpr double kLeast = 1e-6;
  model.rope_scaling_low_freq_factor = needed(rope, "low_freq_factor", kLeast, kMostFactor);
  model.rope_scaling_high_freq_factor = needed(rope, "high_freq_factor", kLeast, kMostFactor);
  if (model.rope_scaling_high_freq_factor <= model.rope_scaling_low_freq_factor)
    rope.problem(fmt::format("'high_freq_factor' is {}; more than 'low_freq_factor', {}, is needed",
                             model.rope_scaling_high_freq_factor, model.rope_scaling_low_freq_factor));
}

void read_kind(ConfigReader& from, ConfigReader& rope, ModelConfig& model) {
  const bool latent = model.multi_latent_attention;
  const json type = rope.given("rope_type") ? rope.value("rope_type")
                    : rope.given("type")    ? rope.value("type")
                                            : json("default");
  if (latent && type != "yarn" && type != "default" && is_given(rope.value("mscale_all_dim")))
    return rope.problem("'mscale_all_dim' is supported with the type yarn alone");
  if (type == "default") return;
  if (type == "linear") {
    model.rotary_seq_len_interpolation_factor = needed(rope, "factor", 1, kMostFactor);
  } else if (type == "yarn") {
    read_yarn(from, rope, latent, model);
  } else if (type == "llama3") {
    read_llama3(from, rope, model);
  } else {
    rope.problem(fmt::format("the type is {}; only the types default, linear, yarn and llama3 are supported",
                             printable_json(type)));
  }
}

}  // namespace

ConfigFields rope_fields(const RopeStyle& style) {
  const ConfigField fraction =
      style.partial ? field({style.fraction_name}, style.fraction) : fixed(style.fraction_name, 1);
  return {field({"rope_parameters"}, nullptr), field({"rope_scaling"}, nullptr).beyond_class(),
          field({style.base_name}, style.base).beyond_class(), fraction.beyond_class(),
          field({"original_max_position_embeddings"}, nullptr).beyond_class()};
}

// Which of them a type of rotation reads is up to read_kind; transformers does not look at the others either.
const ConfigFields& rope_parameters_fields() {
  static const ConfigFields kFields{field({"rope_theta"}, nullptr),
                                    field({"rope_type"}, nullptr),
                                    field({"type"}, nullptr).beyond_class(),
                                    field({"partial_rotary_factor"}, nullptr),
                                    field({"factor"}, nullptr),
                                    field({"original_max_position_embeddings"}, nullptr),
                                    field({"attention_factor"}, nullptr),
                                    field({"beta_fast"}, nullptr),
                                    field({"beta_slow"}, nullptr),
                                    field({"mscale"}, nullptr),
                                    field({"mscale_all_dim"}, nullptr),
                                    field({"truncate"}, true).or_null(),
                                    field({"low_freq_factor"}, nullptr),
                                    field({"high_freq_factor"}, nullptr),
                                    unused({"short_factor"}),
                                    unused({"long_factor"}),
                                    unused({"mrope_section"})};
  return kFields;
}

namespace {

void set_fraction(ConfigReader& where, const char* name, ModelConfig& model, const RopeStyle& style) {
  const double fraction = where.number(name);
  const bool possible = style.partial ? fraction > 0 && fraction <= 1 : fraction == 1;
  if (possible)
    model.rotary_percent = fraction;
  else
    where.problem(fmt::format("'{}' is {}; {} supported", name, fraction,
                              style.partial ? "numbers above 0 and up to 1 are" : "only 1 is"));
}

}  // namespace

// 'rope_scaling' replaces 'rope_parameters'. The base is the object's, or else the file's, or else the family's
// default.
void read_rope(ConfigReader& from, ModelConfig& model, const RopeStyle& style) {
  const bool older = is_given(from.value("rope_scaling"));
  const char* key = older ? "rope_scaling" : "rope_parameters";
  model.rotary_base = from.number(style.base_name);
  if (style.partial) set_fraction(from, style.fraction_name, model, style);
  const json& object = from.value(key);
  const json& replaced = from.value("rope_parameters");
  from.value("original_max_position_embeddings");
  if (!is_given(object)) return;
  if (!object.is_object()) return from.problem(fmt::format("'{}' is not an object", key));
  ConfigReader rope(object, rope_parameters_fields(), false);
  if (rope.has("rope_theta")) model.rotary_base = rope.number("rope_theta");
  if (rope.has("partial_rotary_factor")) set_fraction(rope, "partial_rotary_factor", model, style);
  if (older && replaced.is_object() && replaced.contains("rope_theta") &&
      replaced["rope_theta"] != model.rotary_base)
    from.problem(fmt::format(
        "'rope_scaling' replaces 'rope_parameters', and with it its 'rope_theta', {}; the model would "
        "have {}: put 'rope_theta' into 'rope_scaling'",
        printable_json(replaced["rope_theta"]), model.rotary_base));
  read_kind(from, rope, model);
  from.add_problems_of(rope, key);
}

void write_rope(json& config, const ModelConfig& model, const RopeStyle& style) {
  config[style.base_name] = model.rotary_base;
  if (style.partial) config[style.fraction_name] = model.rotary_percent;
  if (model.use_rope_scaling)
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", model.rope_scaling_factor},
                              {"low_freq_factor", model.rope_scaling_low_freq_factor},
                              {"high_freq_factor", model.rope_scaling_high_freq_factor},
                              {"original_max_position_embeddings", model.rope_scaling_original_positions}};
  if (model.rotary_seq_len_interpolation_factor != 1)
    config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", model.rotary_seq_len_interpolation_factor}};
  if (model.rope_type != RopeType::Yarn) return;
  json rope{{model.multi_latent_attention ? "type" : "rope_type", "yarn"},
            {"factor", model.rotary_scaling_factor},
            {"original_max_position_embeddings", model.original_max_position_embeddings},
            {"beta_fast", model.beta_fast},
            {"beta_slow", model.beta_slow}};
  if (model.rope_no_truncate) rope["truncate"] = false;
  if (model.mscale_all_dim != 0) rope["mscale_all_dim"] = model.mscale_all_dim;
  if (model.mscale_all_dim != 0 && !model.rotary_attention_factor) rope["mscale"] = model.mscale;
  // The authors' code of DeepSeek-V3 has no such field: it gets one only if the others do not say it.
  const auto growth_at = [&](double m) { return 0.1 * m * std::log(model.rotary_scaling_factor) + 1; };
  const bool follows = model.mscale_all_dim != 0 ? model.mscale != 0 : model.mscale == 1;
  if (!model.multi_latent_attention || model.rotary_attention_factor || !follows)
    rope["attention_factor"] =
        model.rotary_attention_factor.value_or(growth_at(model.mscale) / growth_at(model.mscale_all_dim));
  config["rope_scaling"] = std::move(rope);
}

}  // namespace trifold
