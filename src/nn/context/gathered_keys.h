// GatheredKeys: context-parallel attention by all-gather (Llama 3, arXiv 2407.21783, section 3.3.2).
//
// Each rank has the queries of its own positions and gathers the keys and values of all positions, in the order of the
// positions, before attention. Documents and dropout therefore work as on a single rank, and outputs and gradients of
// queries have the same bits. Backward gathers keys and values again, so a rank keeps only its own between forward and
// backward. The gradients of keys and values are summed over the ranks in accumulate_type by a reduce-scatter, which
// leaves each rank the gradients of its own positions.
//
// Key heads are processed in groups: while attention of one group is computed, the keys and values of the next group
// are gathered on run.side, and in backward the gradients of the previous group are summed there. Only the first gather
// and the last sum are exposed, and there is memory for a single group. A head has the same bits in any group.
#pragma once

#include "core/function_ref.h"
#include "nn/layer.h"

namespace trifold {

class GatheredKeys {
 public:
  // Packed projections have the columns of `heads` query heads, `kv_heads` key heads and `kv_heads` value heads, in
  // this order, `width` columns each. `threads` is the largest number of threads that a rank computes attention with.
  GatheredKeys(const Mesh& mesh, int64_t heads, int64_t kv_heads, int64_t width, int threads);

  // The number of groups of `kv_heads` key heads: up to four. In backward a thread computes one head at a time, so a
  // group has at least `threads` heads, except the last one, to keep all threads busy.
  static int64_t groups(int64_t kv_heads, int threads) {
    const int64_t each = heads_of_group(kv_heads, threads);
    return (kv_heads + each - 1) / each;
  }

  // Key heads of a group; the last one may have fewer.
  static int64_t heads_of_group(int64_t kv_heads, int threads);

  // Assigns `out`, and `lse`, the log of the sums of exponentials. `attention` describes this rank's queries; its
  // fields for keys are set here.
  void forward(Run& run, Tensor out, Tensor lse, Tensor packed, Attention attention) const;
  // Assigns dpacked, the gradients of `packed`. `out` and `lse` are the results of forward.
  void backward(Run& run, Tensor dpacked, Tensor dout, Tensor packed, Tensor out, Tensor lse,
                Attention attention) const;

 private:
  // Key heads [first, first + count), with their values.
  struct Group {
    int64_t first, count;
  };
  // Keys and values of a group for all positions, or their gradients, in both orders (nn/context/context_rows.h).
  struct Memory {
    Tensor in_order, by_rank;
  };

  // Computes attention of one group, whose keys are set in `attention`.
  using GroupWork = void(Group group, const Attention& attention);

  Group group(int64_t index) const;
  // `take` returns memory for the largest group, in run.scratch; `part_of` returns the part of it that a group uses.
  Memory take(Run& run, DType dtype) const;
  Memory part_of(const Memory& whole, Group group) const;
  Tensor own_rows(Tensor by_rank) const;
  // Gathers the groups one after the other into run.scratch and calls `work` for each; meanwhile the next one is in
  // flight.
  void for_each_group(Run& run, Tensor packed, Attention attention, FunctionRef<GroupWork> work) const;
  // Starts the all-gather of a group into keys.by_rank on run.side; the event follows it.
  Event start_gather(Run& run, const Memory& keys, Tensor packed, Group group) const;
  // Starts the reduce-scatter of a group's gradients.in_order into own_rows(gradients.by_rank) on run.side; the event
  // follows it.
  Event start_sum(Run& run, const Memory& gradients) const;
  // Rounds the sums of a group to the type of the run and copies them to their columns of dpacked.
  void store(Run& run, Tensor dpacked, const Memory& gradients, Group group) const;

  int parts_, part_;
  int64_t heads_, kv_heads_, width_;
  int64_t each_;  // heads per group; the last group may have fewer
};

}  // namespace trifold
