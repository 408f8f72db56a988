// Attention through cuDNN: the table's `attention` and `attention_backward` in all cases that
// attention_choice.h leaves to cuDNN; plain kernels compute the others.
//
// Dropout is cuDNN's own. Its masks are reproducible: backward uses forward's, and a resumed run those of an
// uninterrupted one. But they differ from the CPU's masks and, because a call's seed is that of its first
// sample and head, they change if a mesh or another micro-batch size cuts a batch differently. The plain
// kernels (f32, f64) have the CPU's masks on every mesh.
//
// Keys after the end of a sample (BERT) are masked inside the graphs, which skip tiles without valid keys.
// cuDNN may leave gradients for padding keys and values undefined; they are cleared afterwards.
//
// Documents that do not see each other (Attention::first_keys) are masked inside the graphs on Hopper, without dropout:
// keys of other documents get a low score, and no tile is skipped for them.
// Elsewhere, and with dropout, they use the plain kernels. So do positions that are cut over ranks which gather keys and
// values, or send them round (Attention::rows); ranks that exchange heads (--cp-comm-type a2a) have all positions of a
// head, for cuDNN.
//
// A graph is built when its shape first occurs (about half a second) and kept by the calling thread, because
// cuDNN's plans and handles belong to one thread. Backward uses the deterministic engine, which needs a
// workspace of batch * heads * seq * seq * 2 bytes; if that is large, it computes in groups of samples or
// heads (attention_group of workspace.h). If not deterministic, gradients of queries accumulate in f32,
// batch * heads * seq * head_dim * 4 bytes.
#pragma once

#include "ops/ops.h"

namespace trifold::cuda {

// Sets the raw entries of attention.
void add_attention(OpTable& ops);

// A table's attention_backward, nondeterministic if cuDNN computes it (--no-deterministic-mode).
void attention_backward_in_any_order(Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                                     Tensor lse, const Attention& attention);

}  // namespace trifold::cuda
