// Attention over sequences whose positions are cut over the context-parallel ranks, by all-to-all exchanges:
// before attention, each rank sends the others its positions of their heads, and receives all positions of
// its own heads; after it, the same in reverse (DeepSpeed Ulysses, Jacobs et al., arXiv 2309.14509).
// Attention itself sees whole sequences and has the bits of one rank in both directions.
#pragma once

#include <initializer_list>
#include <string>

#include "nn/layer.h"

namespace trifold {

class ExchangedHeads {
 public:
  // `heads` query and `kv_heads` key heads of `width` numbers, cut evenly over the ranks. Throws if they
  // cannot be; the message names `name`.
  ExchangedHeads(const Mesh& mesh, const std::string& name, int64_t heads, int64_t kv_heads, int64_t width);
  int64_t heads() const { return heads_ / parts_; }  // of this rank
  int64_t kv_heads() const { return kv_heads_ / parts_; }
  int64_t first() const { return part_ * heads(); }

  // From packed projections or outputs of this rank's rows [rows, columns] to those of this rank's heads at
  // all positions [samples * positions, columns / ranks], in `arena`.
  Tensor projections_of_heads(Run& run, Arena& arena, Tensor packed) const {
    return to_heads(run, arena, packed, {heads_, kv_heads_, kv_heads_});
  }
  Tensor outputs_of_heads(Run& run, Arena& arena, Tensor out) const {
    return to_heads(run, arena, out, {heads_});
  }
  // The reverse.
  void projections_of_rows(Run& run, Tensor packed, Tensor of_heads) const {
    to_rows(run, packed, of_heads, {heads_, kv_heads_, kv_heads_});
  }
  void outputs_of_rows(Run& run, Tensor out, Tensor of_heads) const { to_rows(run, out, of_heads, {heads_}); }

 private:
  // `kinds`: the numbers of heads of each kind, in the order of the columns.
  Tensor to_heads(Run& run, Arena& arena, Tensor packed, std::initializer_list<int64_t> kinds) const;
  void to_rows(Run& run, Tensor packed, Tensor of_heads, std::initializer_list<int64_t> kinds) const;
  void exchange(Run& run, Tensor to, Tensor from) const;
  // Calls body(part, here, there, columns): columns from `here` of the packed matrix are columns from `there`
  // of a rank's matrix.
  template <class Body>
  void for_each_piece(std::initializer_list<int64_t> kinds, Body body) const;

  int parts_, part_;
  int64_t heads_, kv_heads_, width_;
};

}  // namespace trifold
