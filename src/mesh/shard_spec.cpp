#include "mesh/shard_spec.h"

namespace trifold {

Rect even_part(const Shape& global, int dim, int part, int parts) {
  check(0 <= dim && dim < global.rank(), "shape {} has no dim {} to cut", to_string(global), dim);
  check(parts >= 1 && 0 <= part && part < parts, "part {} of {} does not exist", part, parts);
  check(global[dim] % parts == 0, "dim {} of {} does not divide into {} equal parts", dim, to_string(global),
        parts);
  Rect rect = Rect::whole(global);
  rect.extent[dim] = global[dim] / parts;
  rect.offset[dim] = rect.extent[dim] * part;
  return rect;
}

bool counts_here(const ShardSpec& spec, const MeshCoords& coords, int slices) {
  if (spec.replicated.has(Axis::Tp)) {
    const int place = spec.tensor_copies == 0 ? coords.tp : coords.tp % spec.tensor_copies;
    if (place != 0) return false;
  }
  if (spec.replicated.has(Axis::Dp) && coords.dp >= slices) return false;
  return !spec.replicated.has(Axis::Pp) || coords.pp == 0;
}

int copies_of(const ShardSpec& spec, const MeshSizes& sizes, int slices) {
  int copies = 1;
  if (spec.replicated.has(Axis::Tp)) copies *= spec.tensor_copies == 0 ? sizes.tp : spec.tensor_copies;
  if (spec.replicated.has(Axis::Dp)) copies *= sizes.dp / slices;
  if (spec.replicated.has(Axis::Pp)) copies *= sizes.pp;
  return copies;
}

}  // namespace trifold
