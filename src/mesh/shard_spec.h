// ShardSpec describes this rank's shard of a named global tensor: its box, the axes over which it is replicated, and
// the axes over which its gradient is a partial sum. Initialisation, gradient reduction, norms, ZeRO ownership and
// checkpoints follow from it by two rules:
//   * A gradient is summed over exactly the axes in `partial`, a subset of `replicated`: first over the axes other than
//     data axes, for all elements of the rank, then over the data axes.
//   * A value that several ranks hold is counted and saved by the first of them (counts_here).
// If a tensor has fewer parts than the tensor axis has ranks, `tensor_copies` consecutive ranks hold the same
// part, and its gradient is a partial sum over them.
#pragma once

#include <string>

#include "mesh/mesh.h"
#include "mesh/rect.h"

namespace trifold {

// The ranks along `axes`; with `tensor_copies`, only that many consecutive ranks of the tensor axis.
struct RankSet {
  AxisSet axes;
  int tensor_copies = 0;  // 0: all ranks of the axis
  bool operator==(const RankSet&) const = default;
};

struct ShardSpec {
  std::string name;    // unique in the model, the same on every mesh: "block.3.attention.qkv.weight"
  Shape global;        // shape of the whole tensor
  Rect local;          // the box on this rank
  AxisSet replicated;  // axes along which other ranks hold the same values
  AxisSet partial;     // axes along which gradients are partial sums
  // For a value replicated over the tensor axis: the number of consecutive ranks with the same values. 0: all ranks.
  int tensor_copies = 0;
  // The number of blocks of the model among which the tensor is divided, in equal parts of its first dim; the axes
  // shard each part. All parts are parameters with the same name.
  int parts = 1;

  // Elements of one part, over all ranks.
  int64_t elements_of_part() const { return global.elements() / parts; }
  // The data axes over which its gradient is summed.
  AxisSet data_axes() const { return partial & (kDataAxes | kExpertDataAxes); }
  // The ranks over which its gradient is summed before the data axes.
  RankSet summed_first() const {
    const AxisSet axes = partial.without(kDataAxes | kExpertDataAxes);
    return {axes, axes.has(Axis::Tp) ? tensor_copies : 0};
  }
};

// The box of part `part` of `parts` equal parts of `global` along `dim`; throws if they cannot be equal.
Rect even_part(const Shape& global, int dim, int part, int parts);

// True on exactly one of the ranks that hold the same values: the one that counts and saves them.
bool counts_here(const ShardSpec& spec, const MeshCoords& coords);
// counts_here under ZeRO: `slices` consecutive ranks of the data axes shard the values, each with its own slice; with
// 1, every rank holds all of them.
bool counts_here(const ShardSpec& spec, const MeshCoords& coords, const MeshSizes& sizes, int slices);
// The number of ranks that hold the same values.
int copies_of(const ShardSpec& spec, const MeshSizes& sizes, int slices = 1);

}  // namespace trifold
