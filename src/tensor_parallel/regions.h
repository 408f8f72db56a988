// Region: the collectives at the borders of regions of tensor parallelism.
//
// Inside a region (attention, MLP, output loss) each rank of the tensor axis computes some columns of every row.
// Between regions an activation is either
//   whole    [R, C], the same on every rank (Shoeybi et al., arXiv 1909.08053), or
//   a slice  [R/tp, C]: rank t has rows [t R/tp, (t+1) R/tp). This is sequence parallelism (Korthikanti et al.,
//            arXiv 2205.05198): each rank computes norms and dropout for its rows alone, and keeps only these.
// The two borders are adjoint to each other:
//                          whole                          slice
//   enter   forward        nothing                        gather rows
//           backward       sum over the axis              sum, then keep the own rows (reduce-scatter)
//   leave   forward        sum over the axis              reduce-scatter
//           backward       nothing                        gather rows
// Both forms move the same number of bytes. With one rank on the axis every function here does nothing.
#pragma once

#include "nn/layer.h"

namespace trifold {

class Region {
 public:
  // Activations between regions are slices if the builder has sequence parallelism.
  explicit Region(const BlockBuilder& builder)
      : tp_(builder.mesh().size(Axis::Tp)),
        part_(builder.mesh().coord(Axis::Tp)),
        slices_(builder.sequence_parallel()) {}

  bool alone() const { return tp_ == 1; }
  bool slices() const { return slices_; }
  // The rows of an activation between regions, from the rows inside, and the inverse. rows_outside throws if `inside`
  // rows cannot be cut evenly.
  int64_t rows_outside(int64_t inside) const;
  int64_t rows_inside(int64_t outside) const { return slices_ ? outside * tp_ : outside; }
  // This rank's rows of `all`, a tensor with an element or a row for each row of the micro-batch.
  Tensor own_rows(Tensor all) const;

  // All rows of an activation: a gathered copy in `arena`, or `x` itself if it is whole. Runs on stream `on`.
  Tensor gather_rows(Run& run, Tensor x, Arena& arena, Stream& on) const;

  // Gathers `part` [n] of each rank of the axis into [ranks * n], in rank order, in `arena`.
  Tensor gather_parts(Run& run, Tensor part, Arena& arena) const;

  // An activation that is a sum over the ranks of the axis. Each rank computes `partial` [R, C], and add_up writes the
  // sum, or this rank's rows of it, to `result`, which is in `arena`. If activations are whole, the two are the same
  // tensor; otherwise `partial` is scratch, which the caller releases to `mark` after add_up. `arena` may be
  // run.scratch.
  struct Sum {
    Tensor partial, result;
    Arena::Mark mark;
  };
  Sum take_sum(Run& run, Arena& arena, int64_t rows, int64_t width) const;
  void add_up(Run& run, const Sum& sum, Stream& on) const;

 private:
  int tp_, part_;
  bool slices_;
};

// In-place sum or maximum over the tensor axis, on run.stream.
void reduce_over_axis(Run& run, Tensor inout, Reduce reduction);

}  // namespace trifold
