// ExchangedHeads: context-parallel attention by all-to-all (DeepSpeed Ulysses, Jacobs et al., arXiv 2309.14509).
//
// Outside attention a rank has some positions of all heads. Before attention an all-to-all gives it all positions of
// some heads, and another one reverses that afterwards. Attention itself sees whole sequences, so its results have the
// same bits as on a single rank, forward and backward.
//
// With fewer key heads than ranks, consecutive ranks get copies of the same key head. In backward each of them computes
// the part of its gradient that comes from its own query heads; the rank that has the rows adds these parts, in the
// order of the ranks and in accumulate_type.
#pragma once

#include <initializer_list>
#include <string>

#include "nn/layer.h"

namespace trifold {

class ExchangedHeads {
 public:
  // For `heads` query heads and `kv_heads` key heads of `width` columns each. The number of context-parallel ranks must
  // divide `heads`, and divide `kv_heads` or be a multiple of it; else throws an Error that begins with `name`.
  ExchangedHeads(const Mesh& mesh, const std::string& name, int64_t heads, int64_t kv_heads, int64_t width);
  int64_t heads() const { return heads_per_rank(heads_); }  // query heads on this rank
  int64_t kv_heads() const { return heads_per_rank(kv_heads_); }
  int64_t first() const { return part_ * heads(); }

  // All-to-all from this rank's rows [rows, columns of all heads] to this rank's heads at all positions [samples *
  // positions, columns of these heads], in order. The result, of packed projections or of attention's outputs, is taken
  // from `arena`.
  Tensor projections_of_heads(Run& run, Arena& arena, Tensor packed) const {
    return to_heads(run, arena, packed, {heads_, kv_heads_, kv_heads_});
  }
  Tensor outputs_of_heads(Run& run, Arena& arena, Tensor out) const {
    return to_heads(run, arena, out, {heads_});
  }
  // The reverse exchange: assigns this rank's rows to `packed` (gradients of projections) or to `out`.
  void projections_of_rows(Run& run, Tensor packed, Tensor of_heads) const;
  void outputs_of_rows(Run& run, Tensor out, Tensor of_heads) const;

 private:
  // `kinds`: how many heads of each kind the columns hold, in their order.
  Tensor to_heads(Run& run, Arena& arena, Tensor packed, std::initializer_list<int64_t> kinds) const;
  // The reverse exchange without reordering: rows [part * rows, (part + 1) * rows) of the result have this rank's rows
  // for the heads of rank `part`. In run.scratch.
  Tensor received_rows(Run& run, Tensor of_heads) const;
  void exchange(Run& run, Tensor to, Tensor from) const;
  // Calls body(part, column, rank_column, columns) for each rank and kind: columns [column, column + columns) of the
  // matrix of all heads are the columns of the matrix of rank `part` from `rank_column` on.
  template <class Body>
  void for_each_piece(std::initializer_list<int64_t> kinds, Body body) const;
  // Sums the gradients of each key head and of its values over the ranks that have a copy.
  void add_copies(Run& run, Tensor packed, Tensor received) const;

  int64_t heads_per_rank(int64_t heads) const { return std::max<int64_t>(1, heads / parts_); }
  bool has_copies() const { return kv_heads_ < parts_; }

  int parts_, part_;
  int64_t heads_, kv_heads_, width_;
};

}  // namespace trifold
