// ShardSpec: which box of which named global tensor lives on this rank, over which axes it is replicated, and
// over which its gradient is partial. One value answers initialisation, gradient reduction, norm counting,
// ZeRO ownership and checkpointing, by two rules:
//   * a gradient is summed over exactly the axes in `partial`;
//   * a value replicated over an axis is counted and saved by coordinate 0 of that axis.
// Where a tensor has fewer pieces than the tensor axis has ranks, `tensor_copies` ranks that follow each
// other hold the same piece: its gradient is a partial sum over those, and the first of them counts and saves
// it.
#pragma once

#include <string>

#include "mesh/mesh.h"
#include "mesh/rect.h"

namespace trifold {

struct ShardSpec {
  std::string name;    // unique in the model, the same on every mesh: "block.3.attention.qkv.weight"
  Shape global;        // shape of the whole tensor
  Rect local;          // the box held here
  AxisSet replicated;  // axes along which other ranks hold the same values
  AxisSet partial;     // axes along which gradients are partial sums
  int tensor_copies = 1;
};

// The box of coordinate `part` of `parts` when `dim` of `global` is cut evenly; throws when it does not
// divide.
Rect even_part(const Shape& global, int dim, int part, int parts);

// True on exactly one of the ranks of the tensor axis that hold the same values.
bool is_tensor_owner(const ShardSpec& spec, int tp_coord);
// True on exactly one of the ranks that hold the same values: the one that counts and saves them.
bool is_owner(const ShardSpec& spec, const MeshCoords& coords);

}  // namespace trifold
