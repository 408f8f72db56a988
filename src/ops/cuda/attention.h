// Attention through cuDNN: the table's `attention` and `attention_backward` where attention_choice.h leaves
// it to cuDNN; the plain kernels have the rest.
//
// Dropout is cuDNN's own: its masks repeat (backward has forward's, a resumed run those of the run that was
// not stopped), but they are other masks than the processor's, and as each call's seed is of its first sample
// and head, other masks where a mesh or another size of micro-batch cuts a batch elsewhere. The plain kernels
// (f32, f64) have the processor's masks on every mesh.
//
// Keys behind a sample's length (BERT) are masked inside the graphs, which leave out tiles that have none of
// the others; what cuDNN may leave where their gradients and those of their values belong is cleared after
// it.
//
// Documents that do not see each other (Attention::first_keys) have the plain kernels, in all types: the graphs
// here do not mask them.
//
// A graph is built when its shape is met first (about half a second) and kept by the calling thread, for
// plans and handles of cuDNN belong to one thread. Backward takes the engine that gives the same bits each
// time, at the price of a workspace of batch * heads * seq * seq * 2 bytes, of groups of samples or heads
// where that would be large (attention_group of workspace.h). In any order, the gradients of
// queries are added up in f32, batch * heads * seq * head_dim * 4 bytes, as they come.
#pragma once

#include "ops/ops.h"

namespace trifold::cuda {

// Sets the raw entries for attention.
void add_attention(OpTable& ops);

// attention_backward of a table, with other bits each time where cuDNN computes it (--no-deterministic-mode).
void attention_backward_in_any_order(Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                                     Tensor lse, const Attention& how);

}  // namespace trifold::cuda
