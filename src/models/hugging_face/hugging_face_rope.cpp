// Rotary positions in a config.json. Versions of transformers from 5 on keep everything in 'rope_parameters', older
// ones in 'rope_theta' and 'rope_scaling'; files have any mixture of these.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

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

// The positions of the original training: a field of the file, or of its class, takes precedence over a field of the
// object.
int64_t original_positions(ConfigReader& from, ConfigReader& rope, const ModelConfig& model) {
  const char* name = "original_max_position_embeddings";
  const bool outside = from.knows(name) && !from.value(name).is_null();
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

std::vector<RopeFactor> read_factors(ConfigReader& rope, const char* name, int64_t pairs) {
  const json& values = rope.value(name);
  const auto possible = [](const json& value) {
    return value.is_number() && value.get<double>() > 0 && value.get<double>() <= kMostFactor;
  };
  std::vector<RopeFactor> factors;
  if (!values.is_array() || !std::all_of(values.begin(), values.end(), possible))
    rope.problem(
        fmt::format("'{}' is {}; a list of numbers above 0 is needed", name, printable_json(values)));
  else if (std::ssize(values) != pairs)
    rope.problem(fmt::format("'{}' has {} numbers; {} are needed, one for each pair of channels that rotates",
                             name, values.size(), pairs));
  else
    for (const json& value : values) factors.push_back({value.get<double>()});
  return factors;
}

void read_long_rope(ConfigReader& from, ConfigReader& rope, ModelConfig& model) {
  model.rope_type = RopeType::LongRope;
  model.original_max_position_embeddings = original_positions(from, rope, model);
  const int64_t pairs = model.num_attention_heads > 0 ? rotated_width(model) / 2 : 0;
  model.rope_short_factor = read_factors(rope, "short_factor", pairs);
  model.rope_long_factor = read_factors(rope, "long_factor", pairs);
  const double factor = rope.has("factor") ? rope.number("factor")
                                           : static_cast<double>(*model.max_position_embeddings) /
                                                 static_cast<double>(model.original_max_position_embeddings);
  // Factors below 1 leave queries and keys as they are, as 1 does.
  model.rotary_scaling_factor = std::clamp(factor, 1.0, kMostFactor);
  if (factor > kMostFactor)
    rope.problem(fmt::format("'factor' is {}; at most {} is possible", factor, kMostFactor));
  if (factor > 1 && model.original_max_position_embeddings < 2)
    rope.problem("'original_max_position_embeddings' is 1; at least 2 are needed");
  model.rotary_attention_factor = rope.number_or_null("attention_factor");
  constexpr double kMost = 1e3;
  if (const auto c = model.rotary_attention_factor; c && !(*c > 0 && *c <= kMost))
    rope.problem(fmt::format("'attention_factor' is {}; above 0 and up to {} are possible", *c, kMost));
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
  } else if (type == "longrope") {
    read_long_rope(from, rope, model);
  } else {
    rope.problem(
        fmt::format("the type is {}; only the types default, linear, yarn, llama3 and longrope are supported",
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
                                    field({"short_factor"}, nullptr),
                                    field({"long_factor"}, nullptr),
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

bool turns_plainly(const ModelConfig& model) {
  return !model.use_rope_scaling && model.rotary_seq_len_interpolation_factor == 1 &&
         model.rope_type == RopeType::Rope;
}

// 'rope_scaling' replaces 'rope_parameters'. The base is the object's, or else the file's, or else the family's
// default.
void read_rope(ConfigReader& from, ModelConfig& model, const RopeStyle& style) {
  const bool older = is_given(from.value("rope_scaling"));
  const char* key = older ? "rope_scaling" : "rope_parameters";
  model.rotary_base = from.number(style.base_name);
  if (style.partial) set_fraction(from, style.fraction_name, model, style);
  const json& given = from.value(key);
  const json object = given.is_null() && style.absent != nullptr ? style.absent() : given;
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

namespace {

json factors_json(const std::vector<RopeFactor>& factors) {
  json values = json::array();
  for (const RopeFactor& factor : factors) values.push_back(factor.factor);
  return values;
}

json long_rope_json(const ModelConfig& model) {
  json rope{{"rope_type", "longrope"},
            {"factor", model.rotary_scaling_factor},
            {"original_max_position_embeddings", model.original_max_position_embeddings},
            {"short_factor", factors_json(model.rope_short_factor)},
            {"long_factor", factors_json(model.rope_long_factor)}};
  if (model.rotary_attention_factor) rope["attention_factor"] = *model.rotary_attention_factor;
  return rope;
}

// The scaling of frequencies as 'rope_scaling' has it; null if there is none.
json scaling_json(const ModelConfig& model) {
  if (model.use_rope_scaling)
    return {{"rope_type", "llama3"},
            {"factor", model.rope_scaling_factor},
            {"low_freq_factor", model.rope_scaling_low_freq_factor},
            {"high_freq_factor", model.rope_scaling_high_freq_factor},
            {"original_max_position_embeddings", model.rope_scaling_original_positions}};
  if (model.rotary_seq_len_interpolation_factor != 1)
    return {{"rope_type", "linear"}, {"factor", model.rotary_seq_len_interpolation_factor}};
  if (model.rope_type == RopeType::LongRope) return long_rope_json(model);
  if (model.rope_type != RopeType::Yarn) return {};
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
  return rope;
}

}  // namespace

void write_rope(json& config, const ModelConfig& model, const RopeStyle& style) {
  config[style.base_name] = model.rotary_base;
  if (style.partial) config[style.fraction_name] = model.rotary_percent;
  if (json scaling = scaling_json(model); !scaling.is_null()) config["rope_scaling"] = std::move(scaling);
}

ConfigFields window_rope_fields(const WindowRopeStyle& style) {
  ConfigFields fields{field({"rope_parameters"}, nullptr), field({"rope_scaling"}, nullptr).beyond_class(),
                      field({style.base_name}, style.base).beyond_class(),
                      fixed("partial_rotary_factor", 1).beyond_class()};
  if (style.window_base_name != nullptr)
    fields.push_back(field({style.window_base_name}, style.window_base).beyond_class());
  return fields;
}

namespace {

constexpr const char* kFull = "full_attention";
constexpr const char* kSliding = "sliding_attention";

// The objects of both kinds of layers in 'rope_parameters', the first with what 'rope_scaling' adds to it.
struct RopeOfKinds {
  json full = json::object(), sliding = json::object();
};

RopeOfKinds read_kinds_of_rope(ConfigReader& from, const WindowRopeStyle& style) {
  static const ConfigFields kKinds{field({kFull}, nullptr), field({kSliding}, nullptr)};
  RopeOfKinds kinds;
  const json& nested = from.value("rope_parameters");
  if (nested.is_object()) {
    ConfigReader reader(nested, kKinds, false);
    for (const auto& [name, object] : {std::pair(kFull, &kinds.full), {kSliding, &kinds.sliding}}) {
      const json& value = reader.value(name);
      if (value.is_object())
        *object = value;
      else if (!value.is_null())
        reader.problem(fmt::format("'{}' is {}; an object is needed", name, printable_json(value)));
    }
    from.add_problems_of(reader, "rope_parameters");
  } else if (!nested.is_null()) {
    from.problem("'rope_parameters' is not an object");
  }
  const json& scaling = from.value("rope_scaling");
  if (scaling.is_null()) return kinds;
  if (!scaling.is_object())
    from.problem("'rope_scaling' is not an object");
  else if (scaling.contains("type") && !scaling.contains("rope_type"))
    from.problem("'rope_scaling' says 'type', which transformers does not read here; call it 'rope_type'");
  else
    for (json* kind : {&kinds.full, style.scales_windows ? &kinds.sliding : nullptr})
      if (kind != nullptr) kind->update(scaling);
  return kinds;
}

void read_rope_of_kind(ConfigReader& from, const json& object, const char* kind, ModelConfig& model) {
  ConfigReader rope(object, rope_parameters_fields(), false);
  if (rope.has("rope_theta")) model.rotary_base = rope.number("rope_theta");
  if (rope.has("partial_rotary_factor")) set_fraction(rope, "partial_rotary_factor", model, {});
  read_kind(from, rope, model);
  from.add_problems_of(rope, kind);
}

// Whether the frequencies that rope parameters give to heads of any width are equal.
bool same_rope(const ModelConfig& a, const ModelConfig& b) {
  const auto values = [](const ModelConfig& model) {
    return std::tie(model.rotary_base, model.use_rope_scaling, model.rope_scaling_factor,
                    model.rope_scaling_low_freq_factor, model.rope_scaling_high_freq_factor,
                    model.rope_scaling_original_positions, model.rotary_seq_len_interpolation_factor,
                    model.rope_type, model.rotary_scaling_factor, model.original_max_position_embeddings,
                    model.beta_fast, model.beta_slow, model.mscale, model.mscale_all_dim,
                    model.rotary_attention_factor, model.rope_no_truncate, model.rope_short_factor,
                    model.rope_long_factor);
  };
  return values(a) == values(b);
}

}  // namespace

void read_window_rope(ConfigReader& from, ModelConfig& model, const WindowRopeStyle& style) {
  const RopeOfKinds kinds = read_kinds_of_rope(from, style);
  ModelConfig windowed = model;
  model.rotary_base = from.number(style.base_name);
  windowed.rotary_base =
      style.window_base_name != nullptr ? from.number(style.window_base_name) : style.window_base;
  read_rope_of_kind(from, kinds.full, kFull, model);
  read_rope_of_kind(from, kinds.sliding, kSliding, windowed);
  const bool lost = style.window_base_name == nullptr && from.has(style.base_name) &&
                    from.number(style.base_name) != style.window_base &&
                    !kinds.sliding.contains("rope_theta");
  if (lost)
    from.problem(
        fmt::format("'{}' is {}, which transformers gives to layers without a window alone: give "
                    "the base of each kind of layers in 'rope_parameters'",
                    style.base_name, from.number(style.base_name)));
  if (same_rope(windowed, model)) return;
  model.window_rotary_base = windowed.rotary_base;
  if (!turns_plainly(windowed))
    from.problem(
        "'rope_parameters': 'sliding_attention' has another scaling than 'full_attention'; only the type "
        "default or the same is supported");
}

void write_window_rope(json& config, const ModelConfig& model) {
  for (const char* older : {"rope_theta", "rope_scaling"}) config.erase(older);
  const json plain{{"rope_type", "default"}};
  json full = scaling_json(model);
  if (full.is_null()) full = plain;
  json sliding = model.window_rotary_base ? plain : full;
  full["rope_theta"] = model.rotary_base;
  sliding["rope_theta"] = model.window_rotary_base.value_or(model.rotary_base);
  config["rope_parameters"] = {{kFull, std::move(full)}, {kSliding, std::move(sliding)}};
}

}  // namespace trifold
