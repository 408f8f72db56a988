// Attention through cuDNN: the table's `attention` and `attention_backward`. attention_choice.h decides which calls
// cuDNN computes; the plain kernels (kernels/attention.cu) compute the others.
//
// Dropout masks are cuDNN's. They are reproducible: backward has the mask of forward, and a resumed run has the masks
// of an uninterrupted run. But they differ from the CPU's masks, and they change with the mesh and the micro-batch
// size, because a call is seeded by its first sample and head. The plain kernels (f32, f64) have the CPU's masks on
// every mesh.
//
// Keys after the end of a sample (BERT) are masked inside the graphs, which skip tiles without valid keys.
// cuDNN may leave gradients for padding keys and values undefined; they are cleared afterwards.
//
// Packed documents (Attention::first_keys) without dropout are masked inside the graphs on Hopper: keys of other
// documents get a low score, and no tile is skipped for them. Other devices, and documents with dropout, use the plain
// kernels. So does context parallelism with gathered keys or a ring (Attention::rows); with --cp-comm-type a2a a rank
// has all positions of its heads and uses cuDNN.
//
// A graph is built when its shape first occurs (about half a second) and cached by the calling thread, because
// cuDNN's plans and handles belong to one thread. Backward uses the deterministic engine, which needs a
// workspace of batch * heads * seq * seq * 2 bytes; if that is large, it computes in groups of samples or
// heads (attention_group of workspace.h). A nondeterministic backward accumulates gradients of queries in f32,
// batch * heads * seq * head_dim * 4 bytes.
#pragma once

#include "ops/ops.h"

namespace trifold::cuda {

// Sets the raw entries of attention.
void add_attention(OpTable& ops);

// The table's attention_backward for --no-deterministic-mode: nondeterministic if cuDNN computes it.
void attention_backward_in_any_order(Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                                     Tensor lse, const Attention& attention);

}  // namespace trifold::cuda
