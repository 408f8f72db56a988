#include "mesh/shard_spec.h"

namespace trifold {

Rect even_part(const Shape& global, int dim, int part, int parts) {
  check(0 <= dim && dim < global.rank(), "shape {} has no dim {} to cut", to_string(global), dim);
  check(parts >= 1 && 0 <= part && part < parts, "there is no part {} of {}", part, parts);
  check(global[dim] % parts == 0, "dim {} of {} does not divide into {} equal parts", dim, to_string(global),
        parts);
  Rect rect = Rect::whole(global);
  rect.extent[dim] = global[dim] / parts;
  rect.offset[dim] = rect.extent[dim] * part;
  return rect;
}

namespace {

// The index among the ranks along `axis` that hold the same values.
int place_among_copies(const ShardSpec& spec, Axis axis, int coord) {
  return axis == Axis::Tp && spec.tensor_copies > 0 ? coord % spec.tensor_copies : coord;
}

bool is_first_along(AxisSet axes, const ShardSpec& spec, const MeshCoords& coords) {
  for (size_t i = 0; i < kAxes; ++i) {
    const auto axis = static_cast<Axis>(i);
    if (axes.has(axis) && place_among_copies(spec, axis, coords[axis]) != 0) return false;
  }
  return true;
}

}  // namespace

bool counts_here(const ShardSpec& spec, const MeshCoords& coords) {
  return is_first_along(spec.replicated, spec, coords);
}

bool counts_here(const ShardSpec& spec, const MeshCoords& coords, const MeshSizes& sizes, int slices) {
  const AxisSet data = spec.replicated & (kDataAxes | kExpertDataAxes);
  return place_along(data, coords, sizes) < slices &&
         is_first_along(spec.replicated.without(data), spec, coords);
}

int copies_of(const ShardSpec& spec, const MeshSizes& sizes, int slices) {
  const AxisSet tensor = spec.tensor_copies > 0 ? spec.replicated & AxisSet{Axis::Tp} : AxisSet{};
  const int on_tensor = tensor.empty() ? 1 : spec.tensor_copies;
  return on_tensor * sizes.ranks(spec.replicated.without(tensor)) / slices;
}

}  // namespace trifold
