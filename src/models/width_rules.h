// The rules of the maximal update parametrisation (Yang et al., "Tensor Programs V", arXiv 2203.03466, table 8): a model
// of another width than the one for which rates and initial values were tuned (--mup-base-hidden-size) gets them by the
// role of each parameter, so that activations, and what a step changes in them, have the same scale at every width.
//
// With m = the width over the base width, Adam's factors are
//
//   role      parameters                              initial values   rate    weight decay
//   vector    biases, norms, sinks, adapters          1                1       1
//   table     embeddings and the output layer         1                1       1
//   readout   matrices with few outputs: routers,     1 / m            1 / m   m
//             gates
//   matrix    all other matrices                      1 / sqrt(m)      1 / m   m
//
// Logits are divided by m, and scores of attention by the width of a head instead of its root (--mup-base-head-dim).
// Decay is decoupled and multiplied by the rate, so its factor keeps what a step takes from a weight. The other widths
// of the model (feed-forward networks, heads, experts) are expected to grow with it.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields/model_config.h"
#include "nn/param.h"

namespace trifold {

enum class WidthRole { Vector, Table, Readout, Matrix };

struct WidthRule {
  WidthRole role;
  std::string_view name;        // "matrix"
  std::string_view parameters;  // what has the role, in words
  double init, rate, decay;     // powers of m
};

// A rule for each role, in the order of the enumerators.
std::span<const WidthRule> width_rules();

WidthRole width_role(const ParamSpec& spec);

// Applies the rules to all parameters, which have the options' initial values. No effect at the base width.
void apply_width_rules(ParamList& params, double ratio);

// The rules with the numbers of this model, a line each; none without --mup-base-hidden-size.
std::vector<std::string> width_lines(const ModelConfig& config, const ParamList& params);

}  // namespace trifold
