// Arguments, other than tensors, of the operations that assign tokens to experts (Shazeer et al., arXiv 1701.06538;
// Fedus et al., arXiv 2101.03961). No function here has a body, because the kernels of every instruction set include
// this header.
//
// A router scores E experts for each of T tokens and chooses k of them. A *choice* is one of the T k pairs of a token
// and a chosen expert: choice c belongs to token c / k, whose experts are in ascending order. A *row* is a choice's
// index after all choices are sorted by expert and, within an expert, by token: rows [first[e], first[e + 1]) belong to
// expert e; there may be none.
#pragma once

#include <cstdint>

#include "core/choices.h"

namespace trifold {

// The gate (weight) of a choice of expert i, from the logits z of its token; S are the experts that the token chose:
//   Chosen   exp(z_i) / the sum of exp(z) over S
//   All      exp(z_i) / the sum of exp(z) over all experts
//   Sigmoid  s_i / the sum of s over S, with s = 1 / (1 + exp(-z)); with k = 1, s_i
// Each is multiplied by Router::scale.
enum class RouterGate : uint8_t { Chosen, All, Sigmoid };

struct Router {
  int64_t choices = 1;  // k
  RouterGate gate = RouterGate::Chosen;
  double scale = 1;
  // With groups > 1, the experts are divided into `groups` consecutive groups of equal size, at most kMostGroups, and a
  // token chooses among the experts of its `kept_groups` best groups (DeepSeek-AI, arXiv 2412.19437). The score of a
  // group is the sum of its choices / kept_groups best experts' scores. The score of an expert is its logit for Chosen,
  // its softmax over all experts for All, and s plus the bias for Sigmoid.
  int64_t groups = 1;
  int64_t kept_groups = 1;
  // router_losses reads `counts`, which may include tokens of other calls, instead of writing them.
  bool counted = false;
};
constexpr int64_t kMostGroups = 64;

// Argument of OpTable::drop_choices: each of `experts` experts takes at most `capacity` choices of every sequence of
// `seq` tokens; `kept` decides which.
struct ExpertLimit {
  int64_t experts = 0;
  int64_t seq = 0;
  int64_t capacity = 0;
  KeptChoices kept = KeptChoices::LargestGates;
};

// Coefficients of a token's losses in the total loss (OpTable::router_losses).
struct RouterLosses {
  double balance = 0;
  double z = 0;
};

}  // namespace trifold
