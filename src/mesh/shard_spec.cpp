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

bool is_tensor_owner(const ShardSpec& spec, int tp_coord) {
  return spec.replicated.has(Axis::Tp) ? tp_coord == 0 : tp_coord % spec.tensor_copies == 0;
}

bool is_owner(const ShardSpec& spec, const MeshCoords& coords) {
  return is_tensor_owner(spec, coords.tp) && !(spec.replicated.has(Axis::Dp) && coords.dp != 0) &&
         !(spec.replicated.has(Axis::Pp) && coords.pp != 0);
}

}  // namespace trifold
