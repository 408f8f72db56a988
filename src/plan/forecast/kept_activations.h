// KeptActivations counts the activations that another program, described by Software::activations, keeps for one
// micro-batch. It derives them from the operations of a transformer layer: the inputs and outputs that backward reads.
// Nothing is fitted. References: arXiv 2205.05198, section 4.1, for fused kernels; what PyTorch's autograd saves for
// each operation otherwise.
//
// Bytes per row (token). h is the width, q and k are the widths of all query and of all key heads, f is the inner width
// (g of them, 2 if gated, else 1), a the number of heads, s the sequence length, e the bytes of an activation. [t] is
// divided by the tensor ranks, [s] only with sequence parallelism:
//
//                          fused                compiled           eager
//   norms, two             inputs 2 e h [s]     the same           RMSNorm: f32 copies and results 2 (4 + e) h [s]
//   inputs of products     2 e h [s]            none               2 e h [s]
//   queries, keys, values  e (q + 2 k) [t]      the same           e 3 q [t]: keys and values are repeated
//   attention's output     e q [t]              the same           the same
//   inner width            e (g + 1) f [t]      e g f [t]          e 2 g f [t]
//   masks of dropout       2 h [s]
//   unfused scores         e a s [t], with dropout 2 e + 1 for each
//   loss, while computed   e + 8 per logit      12                 12
//
// The loss keeps logits, copies in f32, their logarithmic softmax and its gradients (Software::loss_bytes for another
// loss). Compiled layers recompute elementwise operations from the outputs of products.
#pragma once

#include "plan/forecast/software.h"
#include "plan/forecast/workload.h"

namespace trifold {

// Bytes on one rank for one micro-batch.
struct KeptBytes {
  double layer = 0;     // kept until backward, averaged over recomputed and other layers
  double input = 0;     // the layer's input, if `layer` includes it
  double held = 0;      // gradients that I leaves for W
  double freed = 0;     // part of `layer` that I releases: all except the inputs of products
  double passing = 0;   // temporaries of a layer's backward: recomputed tensors, gradients of the inner width
  double boundary = 0;  // the residual stream between two layers
  double embedding = 0;
  double head = 0;  // kept until backward
  double loss = 0;  // logits and what is computed from them
};

// BadInput if the program is Trifold itself (dry runs count its memory), or if the model has experts or latent
// attention.
KeptBytes kept_bytes(const Software& software, const Workload& work);

}  // namespace trifold
