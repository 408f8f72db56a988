#include "mesh/mesh.h"

#include <array>

#include "comm/planned_comm.h"

namespace trifold {

namespace {

constexpr std::array kAxes{Axis::Tp, Axis::Dp, Axis::Pp};  // fastest first

std::string to_string(const MeshSizes& sizes) {
  return fmt::format("tp {} x dp {} x pp {}", sizes.tp, sizes.dp, sizes.pp);
}

void check_sizes(const MeshSizes& sizes) {
  check(sizes.tp >= 1 && sizes.dp >= 1 && sizes.pp >= 1, "a mesh of {} has no ranks", to_string(sizes));
}

int coord_of(const MeshCoords& coords, Axis axis) {
  switch (axis) {
    case Axis::Tp:
      return coords.tp;
    case Axis::Dp:
      return coords.dp;
    case Axis::Pp:
      return coords.pp;
  }
  fail("there is no such mesh axis");
}

int size_of(const MeshSizes& sizes, Axis axis) { return coord_of({sizes.tp, sizes.dp, sizes.pp}, axis); }

// Ranks with one color differ only along `axes`; the key orders them. Both are mixed-radix numbers, fastest
// axis first.
struct ColorAndKey {
  int color = 0;
  int key = 0;
};

ColorAndKey color_and_key(AxisSet axes, const MeshCoords& coords, const MeshSizes& sizes) {
  ColorAndKey result;
  int color_step = 1;
  int key_step = 1;
  for (Axis axis : kAxes) {
    int& number = axes.has(axis) ? result.key : result.color;
    int& step = axes.has(axis) ? key_step : color_step;
    number += coord_of(coords, axis) * step;
    step *= size_of(sizes, axis);
  }
  return result;
}

}  // namespace

MeshCoords coords_of(int rank, const MeshSizes& sizes) {
  check_sizes(sizes);
  check(rank >= 0 && rank < sizes.ranks(), "there is no rank {} in a mesh of {}", rank, to_string(sizes));
  return {rank % sizes.tp, rank / sizes.tp % sizes.dp, rank / sizes.tp / sizes.dp};
}

int rank_of(const MeshCoords& coords, const MeshSizes& sizes) {
  check_sizes(sizes);
  for (Axis axis : kAxes)
    check(coord_of(coords, axis) >= 0 && coord_of(coords, axis) < size_of(sizes, axis),
          "a mesh of {} has no coordinates tp {} dp {} pp {}", to_string(sizes), coords.tp, coords.dp,
          coords.pp);
  return coords.tp + sizes.tp * (coords.dp + sizes.dp * coords.pp);
}

std::string label_of(const MeshCoords& coords) {
  return fmt::format("dp{}.pp{}.tp{}", coords.dp, coords.pp, coords.tp);
}

Mesh::Mesh(Communicator& world, const MeshSizes& sizes) : world_(&world), sizes_(sizes) {
  check_sizes(sizes);
  check(world.size() == sizes.ranks(), "a mesh of {} needs {} ranks, but there are {}", to_string(sizes),
        sizes.ranks(), world.size());
  coords_ = coords_of(world.rank(), sizes);
  for (AxisSet axes : {AxisSet{Axis::Tp}, AxisSet{Axis::Dp}, AxisSet{Axis::Pp}, AxisSet{Axis::Dp, Axis::Tp},
                       AxisSet{Axis::Tp, Axis::Pp}, AxisSet{Axis::Dp, Axis::Pp}})
    comm(axes);
}

Mesh::Mesh(const MeshSizes& sizes, const MeshCoords& coords)
    : planned_(planned_communicator(rank_of(coords, sizes), sizes.ranks())),
      world_(planned_.get()),
      sizes_(sizes),
      coords_(coords) {}

int Mesh::size(Axis axis) const { return size_of(sizes_, axis); }

int Mesh::coord(Axis axis) const { return coord_of(coords_, axis); }

Communicator& Mesh::comm(AxisSet axes) const {
  auto& found = comms_[axes];
  if (!found) {
    const ColorAndKey place = color_and_key(axes, coords_, sizes_);
    if (planned_) {
      const ColorAndKey last = color_and_key(axes, {sizes_.tp - 1, sizes_.dp - 1, sizes_.pp - 1}, sizes_);
      found = planned_communicator(place.key, last.key + 1);
    } else {
      found = world_->split(place.color, place.key);
    }
  }
  return *found;
}

}  // namespace trifold
