// Attention over sequences whose positions are cut over the context-parallel ranks, by an exchange all to all:
// before it each rank gives the others its positions of their heads, and gets all positions of its own heads;
// after it the same way back (DeepSpeed Ulysses, Jacobs et al., arXiv 2309.14509). Attention itself is that of
// whole sequences, with the bits of one rank in both directions.
#pragma once

#include <initializer_list>
#include <string>

#include "nn/layer.h"

namespace trifold {

class ExchangedHeads {
 public:
  // `heads` query and `kv_heads` key heads of `width` numbers, of which each rank takes as many. Throws where
  // they cannot be cut evenly; the message names `name`.
  ExchangedHeads(const Mesh& mesh, const std::string& name, int64_t heads, int64_t kv_heads, int64_t width);
  int64_t heads() const { return heads_ / parts_; }  // of this rank
  int64_t kv_heads() const { return kv_heads_ / parts_; }
  int64_t first() const { return part_ * heads(); }

  // Packed projections, and outputs, of the rows here [rows, columns] to those of this rank's heads at all
  // positions [samples * positions, columns / ranks], in `arena`.
  Tensor projections_of_heads(Run& run, Arena& arena, Tensor packed) const {
    return to_heads(run, arena, packed, {heads_, kv_heads_, kv_heads_});
  }
  Tensor outputs_of_heads(Run& run, Arena& arena, Tensor out) const {
    return to_heads(run, arena, out, {heads_});
  }
  // The way back.
  void projections_of_rows(Run& run, Tensor packed, Tensor of_heads) const {
    to_rows(run, packed, of_heads, {heads_, kv_heads_, kv_heads_});
  }
  void outputs_of_rows(Run& run, Tensor out, Tensor of_heads) const { to_rows(run, out, of_heads, {heads_}); }

 private:
  // `kinds`: how many heads of each kind follow each other in the columns.
  Tensor to_heads(Run& run, Arena& arena, Tensor packed, std::initializer_list<int64_t> kinds) const;
  void to_rows(Run& run, Tensor packed, Tensor of_heads, std::initializer_list<int64_t> kinds) const;
  void exchange(Run& run, Tensor to, Tensor from) const;
  // Calls body(part, here, there, columns): columns from `here` of the packed ones are columns from `there`
  // of those of a rank.
  template <class Body>
  void for_each_piece(std::initializer_list<int64_t> kinds, Body body) const;

  int parts_, part_;
  int64_t heads_, kv_heads_, width_;
};

}  // namespace trifold
