// How tokens are assigned to experts (Shazeer et al., arXiv 1701.06538; Fedus et al., arXiv 2101.03961): the
// arguments of the router's operations besides tensors. No function here has a body, because the kernels of
// every instruction set include this header.
//
// A router scores E experts for every token and chooses k of them. A *choice* is one of the T k pairs of a
// token and an expert it chose: choice c belongs to token c / k, whose experts are in ascending order. All
// choices are sorted by expert, and by token within an expert, which gives each a *row*: rows [first[e],
// first[e + 1]) are the tokens of expert e, possibly none.
#pragma once

#include <cstdint>

#include "core/choices.h"

namespace trifold {

// The gate (weight) of a choice, from the logits z of its token; S are the experts that the token chose:
//   Chosen   exp(z_i) / the sum of exp(z) over S
//   All      exp(z_i) / the sum of exp(z) over all experts
//   Sigmoid  s_i / the sum of s over S, s = 1 / (1 + exp(-z)); with k = 1 s_i alone
// each times `scale`.
enum class RouterGate : uint8_t { Chosen, All, Sigmoid };

struct Router {
  int64_t choices = 1;  // k
  RouterGate gate = RouterGate::Chosen;
  double scale = 1;
  // The experts are in `groups` of the same size, at most kMostGroups. Above 1, a token chooses among the experts of
  // its `kept_groups` best groups alone (DeepSeek-AI, arXiv 2412.19437): those in which the sum of the
  // choices / kept_groups best scores is largest. The score of an expert is its logit
  // under Chosen, its share of the softmax over all under All, and s plus the bias under Sigmoid.
  int64_t groups = 1;
  int64_t kept_groups = 1;
  bool counted = false;  // router_losses reads the counts, which may be those of other tokens too
};
constexpr int64_t kMostGroups = 64;

// For OpTable::drop_choices: each of `experts` experts takes at most `capacity` choices of every sequence of `seq`
// tokens.
struct ExpertLimit {
  int64_t experts = 0;
  int64_t seq = 0;
  int64_t capacity = 0;
  KeptChoices kept = KeptChoices::LargestGates;
};

// Coefficients of the losses of a token (OpTable::router_losses).
struct RouterLosses {
  double balance = 0;
  double z = 0;
};

}  // namespace trifold
