// KeyRing: context-parallel attention with keys and values that are passed around a ring (Liu et al., "Ring Attention",
// arXiv 2310.01889).
//
// There are as many steps as ranks. In each step a rank computes attention of its own queries with the keys and values
// of one rank's positions, its own first; meanwhile it sends these to the next rank and receives those for the next
// step. The output over the keys seen so far is merged with the output of each step by the log of the sums of
// exponentials, in accumulate_type, and rounded to the type of the run once, at the end.
//
// Backward passes keys and values around once more. The gradients of a block of keys follow it one step later, also in
// accumulate_type: each rank adds its part, and at last the owner of the keys adds its own. Sums are therefore
// deterministic, but each rank adds in another order, so unlike with GatheredKeys the bits differ from a single rank's.
#pragma once

#include "nn/layer.h"

namespace trifold {

class KeyRing {
 public:
  // Packed projections [R, first + columns] have `first` columns of queries, then `columns` columns of keys and values.
  KeyRing(const Mesh& mesh, int64_t first, int64_t columns)
      : parts_(mesh.size(Axis::Cp)), part_(mesh.coord(Axis::Cp)), first_(first), columns_(columns) {}

  // Assigns out [R, first], and lse, the log of the sums of exponentials, in accumulate_type. `attention` describes
  // this rank's queries; its fields for keys are set here.
  void forward(Run& run, Tensor out, Tensor lse, Tensor packed, Attention attention) const;
  // Assigns dpacked, the gradients of `packed`. `out` and `lse` are the results of forward.
  void backward(Run& run, Tensor dpacked, Tensor dout, Tensor packed, Tensor out, Tensor lse,
                Attention attention) const;

 private:
  // The positions of the keys that this rank has in a step.
  SequenceRows keys_at(const Run& run, int step) const;
  Tensor take_keys(Run& run, DType dtype, Tensor packed) const;
  // Enqueues on run.side: sends `sent` to the next rank and receives `received` from the previous one, and likewise for
  // the second pair. A pair whose tensor to send is empty is skipped.
  void pass_on(Run& run, Tensor sent, Tensor received, Tensor also_sent = {},
               Tensor also_received = {}) const;

  int parts_, part_;
  int64_t first_, columns_;
};

}  // namespace trifold
