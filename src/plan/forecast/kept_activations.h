// KeptActivations counts what a described program (Software::activations) keeps in memory of one micro-batch, from the
// operations of a transformer layer: which of their inputs and outputs backward reads. Nothing is fitted. References: the
// list of arXiv 2205.05198, section 4.1, for fused kernels; for single operations what PyTorch's autograd saves of each.
//
// Per row (token), with h the width, q and k the widths of all query and of all key heads, f the inner width (g = 2 of them
// if gated), e bytes an activation, and t tensor ranks; [t] is divided by them, [s] only with sequence parallelism:
//
//                          fused                compiled           eager
//   norms, two             inputs 2 e h [s]     the same           of RMSNorm copies in f32 and normalized rows 2 (4 + e) h [s]
//   inputs of products     2 e h [s]            none               2 e h [s]
//   queries, keys, values  e (q + 2 k) [t]      the same           e 3 q [t]: keys and values are repeated
//   attention's output     e q [t]              the same           the same
//   inner width            e (g + 1) f [t]      e g f [t]          e 2 g f [t]
//   masks of dropout       2 h [s]
//   unfused scores         e a s [t], with dropout 2 e + 1 for each
//   loss, while computed   e + 8 a logit        12                 12
//
// (logits, copies in f32, their logarithmic softmax and its gradients; Software::loss_bytes where another loss is used)
// Compiled layers compute elementwise operations again from what products leave.
#pragma once

#include "plan/forecast/software.h"
#include "plan/forecast/workload.h"

namespace trifold {

// Bytes on one rank.
struct KeptBytes {
  double layer = 0;     // from forward to backward, on average over layers that are recomputed and others
  double input = 0;     // of the layer's input, if it is part of `layer`
  double held = 0;      // gradients that a layer's input gradients leave for its weight gradients
  double freed = 0;     // of `layer`, with its input gradients: all but the inputs of products
  double passing = 0;   // of a layer's backward: what is recomputed, and gradients of the inner width
  double boundary = 0;  // the residual stream between two layers
  double embedding = 0;
  double head = 0;  // from forward to backward
  double loss = 0;  // logits and what is computed from them
};

// BadInput if the program is Trifold, whose dry runs count its memory, and for models with experts or latent attention.
KeptBytes kept_bytes(const Software& software, const Workload& work);

}  // namespace trifold
