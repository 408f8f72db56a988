// ShardSpec: which box of which named global tensor lives on this rank, over which axes it is replicated, and
// over which its gradient is partial. One value answers initialisation, gradient reduction, norm counting,
// ZeRO ownership and checkpointing, by two rules:
//   * a gradient is summed over exactly the axes in `partial`, which are among those in `replicated`: first
//     over those that are no data axes, on all that a rank holds, then over the data axes;
//   * a value that several ranks hold is counted and saved by the first of them (counts_here).
// If a tensor has fewer parts than the tensor axis has ranks, `tensor_copies` consecutive ranks hold the same
// part, and its gradient is a partial sum over those.
#pragma once

#include <string>

#include "mesh/mesh.h"
#include "mesh/rect.h"

namespace trifold {

// The ranks along `axes`; with `tensor_copies`, only that many consecutive ranks of the tensor axis.
struct RankSet {
  AxisSet axes;
  int tensor_copies = 0;  // 0: all of the axis
  bool operator==(const RankSet&) const = default;
};

struct ShardSpec {
  std::string name;    // unique in the model, the same on every mesh: "block.3.attention.qkv.weight"
  Shape global;        // shape of the whole tensor
  Rect local;          // the box held here
  AxisSet replicated;  // axes along which other ranks hold the same values
  AxisSet partial;     // axes along which gradients are partial sums
  // Of a value replicated over the tensor axis: how many consecutive ranks hold the same. 0: all.
  int tensor_copies = 0;

  // The data axes that its gradient is summed over.
  AxisSet data_axes() const { return partial & (kDataAxes | kExpertDataAxes); }
  // The ranks that its gradient is summed over before these.
  RankSet summed_first() const {
    const AxisSet axes = partial.without(kDataAxes | kExpertDataAxes);
    return {axes, axes.has(Axis::Tp) ? tensor_copies : 0};
  }
};

// The box of coordinate `part` of `parts` when `dim` of `global` is cut evenly; throws when it does not
// divide.
Rect even_part(const Shape& global, int dim, int part, int parts);

// True on exactly one of the ranks that hold the same values: the one that counts and saves them.
bool counts_here(const ShardSpec& spec, const MeshCoords& coords);
// The same if `slices` consecutive ranks of the data axes shard the values, so that each holds a slice of its
// own (ZeRO); with 1 every rank holds them whole.
bool counts_here(const ShardSpec& spec, const MeshCoords& coords, const MeshSizes& sizes, int slices);
// How many ranks hold the same.
int copies_of(const ShardSpec& spec, const MeshSizes& sizes, int slices = 1);

}  // namespace trifold
