#include "models/width_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace trifold {

namespace {

constexpr WidthRule kWidthRules[] = {
    {WidthRole::Vector, "vector", "biases, norms, adapters", 0, 0, 0},
    {WidthRole::Table, "table", "embeddings, output layer", 0, 0, 0},
    {WidthRole::Readout, "readout", "routers, gates", -1, -1, 1},
    {WidthRole::Matrix, "matrix", "all other matrices", -0.5, -1, 1},
};

// Low-rank adapters begin at zero on a trained model, and have a scale of their own.
constexpr std::string_view kAdapters[] = {".lora_a", ".lora_b"};
// Matrices whose outputs do not become more with the width.
constexpr std::string_view kReadouts[] = {".router.weight", ".shared.gate.weight"};

const WidthRule& rule_of(const ParamSpec& spec) { return kWidthRules[static_cast<size_t>(width_role(spec))]; }

}  // namespace

std::span<const WidthRule> width_rules() { return kWidthRules; }

WidthRole width_role(const ParamSpec& spec) {
  if (spec.is_table) return WidthRole::Table;
  if (spec.is_buffer || spec.shard.global.rank() < 2 || !spec.decay) return WidthRole::Vector;
  const auto ends_with = [&](std::string_view end) { return spec.shard.name.ends_with(end); };
  if (std::any_of(std::begin(kAdapters), std::end(kAdapters), ends_with)) return WidthRole::Vector;
  if (std::any_of(std::begin(kReadouts), std::end(kReadouts), ends_with)) return WidthRole::Readout;
  return WidthRole::Matrix;
}

void apply_width_rules(ParamList& params, double ratio) {
  if (ratio == 1) return;
  for (int i = 0; i < params.size(); ++i) {
    const ParamSpec& spec = params[{i}];
    const WidthRule& rule = rule_of(spec);
    params.scale_init({i}, std::pow(ratio, rule.init));
    params.set_factors({i}, spec.lr_factor * std::pow(ratio, rule.rate),
                       spec.decay_factor * std::pow(ratio, rule.decay));
  }
}

std::vector<std::string> width_lines(const ModelConfig& config, const ParamList& params) {
  std::vector<std::string> lines;
  if (!config.mup_base_hidden_size) return lines;
  const double ratio = width_ratio(config);
  const ModelConfig plain = without_base_width(config);
  lines.push_back(fmt::format(
      "{} is {:.6g} x {}; logits / {:.6g}{}", config.hidden_size, ratio, *config.mup_base_hidden_size,
      plain.logits_scaling,
      config.mup_base_head_dim ? fmt::format("; scores of attention x {:.6g}", *plain.softmax_scale) : ""));
  for (const WidthRule& rule : kWidthRules) {
    int count = 0;
    for (const ParamSpec& spec : params.specs())
      if (!spec.tied_to && width_role(spec) == rule.role) ++count;
    if (count > 0)
      lines.push_back(
          fmt::format("{:<8}{:>6} x  initial values x {:.6g}, rate x {:.6g}, weight decay x {:.6g}  ({})",
                      rule.name, count, std::pow(ratio, rule.init), std::pow(ratio, rule.rate),
                      std::pow(ratio, rule.decay), rule.parameters));
  }
  return lines;
}

}  // namespace trifold
