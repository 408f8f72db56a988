// Update rules as arguments of the OpTable, with their hyper-parameters for one step.
//
// Values that change every step can be read from device memory at run time instead (see Factor in ops/ops.h): if a
// rule's `numbers`, f64 [kRuleNumbers], has memory, it holds the result of numbers_of for the step, and kernels read it
// instead of the fields. The launch then depends on only two of the fields, because they decide which tensors exist:
// whether `momentum` is 0, and `kind` of a SparseRule.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/tensor.h"
#include "ops/recommender.h"

namespace trifold {

// One AdamW step (Loshchilov & Hutter, "Decoupled weight decay regularization", ICLR 2019).
struct AdamW {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  int64_t step = 1;       // counts from 1; bias corrections are 1 - beta^step
  double grad_scale = 1;  // the gradient is multiplied by this first (clipping, averaging)
  Tensor numbers = {};
};

// One LAMB step (You et al., arXiv 1904.00962, algorithm 2) with bias correction; fields as in AdamW.
struct Lamb {
  double lr = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;  // weight_decay times the weight is added to the direction
  int64_t step = 1;
  double grad_scale = 1;
  double trust_ratio = 1;  // differs by parameter; used by the second phase only
  Tensor numbers = {};
};

// One step of gradient descent with momentum. Weight decay is added to the gradient.
struct Sgd {
  double lr = 0;
  double momentum = 0.9;
  double weight_decay = 0;
  double grad_scale = 1;
  Tensor numbers = {};
};

// One Adagrad step (Duchi et al., JMLR 2011). Weight decay is added to the gradient.
struct Adagrad {
  double lr = 0;
  double eps = 1e-10;
  double weight_decay = 0;
  double grad_scale = 1;
  Tensor numbers = {};
};

// The constants that kernels derive from a rule for a step, in an order specific to the rule. The host computes them,
// because a device's powers and roots may have other bits.
constexpr size_t kRuleNumbers = 14;
using RuleNumbers = std::array<double, kRuleNumbers>;
RuleNumbers numbers_of(const AdamW& rule);
RuleNumbers numbers_of(const Lamb& rule);
RuleNumbers numbers_of(const Sgd& rule);
RuleNumbers numbers_of(const Adagrad& rule);
RuleNumbers numbers_of(const SparseRule& rule);

}  // namespace trifold
