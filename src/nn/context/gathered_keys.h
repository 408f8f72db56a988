// Attention over sequences whose positions are cut over the context-parallel ranks: each rank has the queries
// of its own positions and gathers the keys and values of all positions, in the order of the positions,
// before the product (Llama 3, arXiv 2407.21783, section 3.3.2). So documents and dropout are the same as on
// one rank, and so are the bits of the output and of the gradients of queries. Backward gathers keys and
// values again, so only those of the rank's own positions are kept. The gradients of all keys and values are
// summed over the ranks in accumulate_type, and each rank keeps those of its own positions.
//
// All of this happens for a group of key heads at a time: while attention of a group is computed, the keys of the next
// one are gathered on run.side, and in backward the gradients of the previous one are summed there. Only the first
// gather and the last sum are waited for, and memory is for one group. A head has the same bits in any group.
#pragma once

#include "core/function_ref.h"
#include "nn/layer.h"

namespace trifold {

class GatheredKeys {
 public:
  // Packed projections have columns of `heads` query heads, then `kv_heads` key heads, then as many of values, each of
  // `width` numbers. `threads` compute attention, on the rank that has the most.
  GatheredKeys(const Mesh& mesh, int64_t heads, int64_t kv_heads, int64_t width, int threads);

  // The groups of `kv_heads` key heads: up to four, but a thread takes a head at a time in backward, so no group has
  // fewer heads than there are threads.
  static int64_t groups(int64_t kv_heads, int threads) {
    const int64_t each = heads_of_group(kv_heads, threads);
    return (kv_heads + each - 1) / each;
  }

  // `how` is that of the queries here; its keys are filled in.
  void forward(Run& run, Tensor out, Tensor lse, Tensor packed, Attention how) const;
  // Assigns dpacked. `out` and `lse` are what forward made.
  void backward(Run& run, Tensor dpacked, Tensor dout, Tensor packed, Tensor out, Tensor lse,
                Attention how) const;

 private:
  // Key heads [first, first + count).
  struct Group {
    int64_t first, count;
  };
  // Keys and values of all positions, or their gradients, in the two orders (nn/context/context_rows.h).
  struct Memory {
    Tensor in_order, by_rank;
  };

  // The computation of one group, whose keys are in `how`.
  using GroupWork = void(Group group, const Attention& how);

  static int64_t heads_of_group(int64_t kv_heads, int threads);
  Group group(int64_t index) const;
  // For the largest group, in run.scratch; and the part of it for one.
  Memory take(Run& run, DType dtype) const;
  Memory part_of(const Memory& whole, Group group) const;
  Tensor own_rows(Tensor by_rank) const;
  // Calls `work` for one group after another, in memory of run.scratch; meanwhile the next group is gathered.
  void for_each_group(Run& run, Tensor packed, Attention how, FunctionRef<GroupWork> work) const;
  // Starts to gather a group into keys.by_rank, on run.side.
  Event start_gather(Run& run, const Memory& keys, Tensor packed, Group group) const;
  // Starts to sum the gradients of a group over the ranks, on run.side, into own_rows(gradients.by_rank).
  Event start_sum(Run& run, const Memory& gradients) const;
  // Rounds the sums into the columns of dpacked.
  void store(Run& run, Tensor dpacked, const Memory& gradients, Group group) const;

  int parts_, part_;
  int64_t heads_, kv_heads_, width_;
  int64_t each_;  // heads of a group; the last may have fewer
};

}  // namespace trifold
