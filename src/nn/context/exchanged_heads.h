// Attention over sequences whose positions are cut over the context-parallel ranks, by all-to-all exchanges:
// before attention, each rank sends the others its positions of their heads, and receives all positions of
// its own heads; after it, the same in reverse (DeepSpeed Ulysses, Jacobs et al., arXiv 2309.14509).
// Attention itself sees whole sequences and has the bits of one rank in both directions.
//
// If there are fewer key heads than ranks, consecutive ranks receive copies of one. Each then has its part of that
// head's gradients, from its own query heads; they are added in the order of the ranks, in accumulate_type, where the
// rows are.
#pragma once

#include <initializer_list>
#include <string>

#include "nn/layer.h"

namespace trifold {

class ExchangedHeads {
 public:
  // `heads` query and `kv_heads` key heads of `width` numbers. Query heads are cut evenly over the ranks; so are key
  // heads, or the ranks over them. Throws if they cannot be; the message names `name`.
  ExchangedHeads(const Mesh& mesh, const std::string& name, int64_t heads, int64_t kv_heads, int64_t width);
  int64_t heads() const { return here(heads_); }  // of this rank
  int64_t kv_heads() const { return here(kv_heads_); }
  int64_t first() const { return part_ * heads(); }

  // From packed projections or outputs of this rank's rows [rows, columns] to those of this rank's heads at
  // all positions [samples * positions, columns of these heads], in `arena`.
  Tensor projections_of_heads(Run& run, Arena& arena, Tensor packed) const {
    return to_heads(run, arena, packed, {heads_, kv_heads_, kv_heads_});
  }
  Tensor outputs_of_heads(Run& run, Arena& arena, Tensor out) const {
    return to_heads(run, arena, out, {heads_});
  }
  // The reverse, for gradients of projections and for outputs.
  void projections_of_rows(Run& run, Tensor packed, Tensor of_heads) const;
  void outputs_of_rows(Run& run, Tensor out, Tensor of_heads) const;

 private:
  // `kinds`: the numbers of heads of each kind, in the order of the columns.
  Tensor to_heads(Run& run, Arena& arena, Tensor packed, std::initializer_list<int64_t> kinds) const;
  // The reverse, by rank: rows [part * rows, (part + 1) * rows) have the heads of rank `part`. In run.scratch.
  Tensor received_rows(Run& run, Tensor of_heads) const;
  void exchange(Run& run, Tensor to, Tensor from) const;
  // Calls body(part, here, there, columns): columns from `here` of the packed matrix are columns from `there`
  // of a rank's matrix.
  template <class Body>
  void for_each_piece(std::initializer_list<int64_t> kinds, Body body) const;
  // Adds up the gradients of each key head and its values, which several ranks have.
  void add_copies(Run& run, Tensor packed, Tensor received) const;

  int64_t here(int64_t heads) const { return std::max<int64_t>(1, heads / parts_); }
  bool has_copies() const { return kv_heads_ < parts_; }

  int parts_, part_;
  int64_t heads_, kv_heads_, width_;
};

}  // namespace trifold
