#include "mesh/mesh.h"

#include <algorithm>
#include <span>

#include "comm/planned_comm.h"

namespace trifold {

namespace {

// Ordered from the fastest axis to the slowest.
constexpr std::array kDenseGrid{Axis::Tp, Axis::Cp, Axis::Dp, Axis::Pp};
constexpr std::array kExpertGrid{Axis::Etp, Axis::Ep, Axis::Edp, Axis::Pp};
constexpr AxisSet kExpertAxes{Axis::Etp, Axis::Ep, Axis::Edp};

std::string_view name_of(Axis axis) {
  constexpr std::array<std::string_view, kAxes> kNames{"tp", "cp", "dp", "etp", "ep", "edp", "pp"};
  return kNames[static_cast<size_t>(axis)];
}

// "tp 2 x dp 3 x pp 1": the axes of experts and of context appear only where they are cut.
std::string to_string(const MeshSizes& sizes) {
  const bool experts = sizes[Axis::Etp] != 1 || sizes[Axis::Ep] != 1;
  std::string text;
  for (const Axis axis : {Axis::Tp, Axis::Cp, Axis::Dp, Axis::Pp, Axis::Etp, Axis::Ep, Axis::Edp}) {
    if (axis == Axis::Cp && sizes[axis] == 1) continue;
    if (kExpertAxes.has(axis) && !experts) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : " x ", name_of(axis), sizes[axis]);
  }
  return text;
}

void check_sizes(const MeshSizes& sizes) {
  for (const Axis axis : kDenseGrid)
    if (sizes[axis] < 1) fail("a mesh of {} has no ranks", to_string(sizes));
  if (sizes[Axis::Etp] < 1 || sizes[Axis::Ep] < 1 || sizes.ranks(kExpertAxes) != sizes.ranks(kStageAxes))
    fail("a mesh of {}: the experts' axes must have the {} ranks of a pipeline stage", to_string(sizes),
         sizes.ranks(kStageAxes));
}

std::span<const Axis> grid_of(AxisSet axes) {
  if ((axes & kExpertAxes).empty()) return kDenseGrid;
  check((axes & kStageAxes).empty(),
        "a set of axes is of one grid: tp, cp, dp and pp, or etp, ep, edp and pp");
  return kExpertGrid;
}

// Ranks with one color differ only along `axes`; the key orders them. Both are mixed-radix numbers, fastest
// axis first.
SplitPlace color_and_key(AxisSet axes, const MeshCoords& coords, const MeshSizes& sizes) {
  SplitPlace result;
  int color_step = 1;
  int key_step = 1;
  for (const Axis axis : grid_of(axes)) {
    int& number = axes.has(axis) ? result.key : result.color;
    int& step = axes.has(axis) ? key_step : color_step;
    number += coords[axis] * step;
    step *= sizes[axis];
  }
  return result;
}

}  // namespace

MeshSizes::MeshSizes(std::initializer_list<std::pair<Axis, int>> sizes) {
  sizes_.fill(1);
  bool named = false;
  for (const auto& [axis, size] : sizes) {
    sizes_[static_cast<size_t>(axis)] = size;
    named = named || axis == Axis::Edp;
  }
  if (named) return;
  const int others = ranks({Axis::Etp, Axis::Ep});
  const int stage = ranks(kStageAxes);
  sizes_[static_cast<size_t>(Axis::Edp)] = others >= 1 && stage % others == 0 ? stage / others : 0;
}

int MeshSizes::ranks(AxisSet axes) const {
  int ranks = 1;
  for (size_t axis = 0; axis < kAxes; ++axis)
    if (axes.has(static_cast<Axis>(axis))) ranks *= sizes_[axis];
  return ranks;
}

MeshCoords::MeshCoords(std::initializer_list<std::pair<Axis, int>> coords) {
  coords_.fill(0);
  for (const auto& [axis, coord] : coords) coords_[static_cast<size_t>(axis)] = coord;
}

MeshCoords coords_of(int rank, const MeshSizes& sizes) {
  check_sizes(sizes);
  check(rank >= 0 && rank < sizes.ranks(), "there is no rank {} in a mesh of {}", rank, to_string(sizes));
  MeshCoords coords;
  for (const auto& grid : {kDenseGrid, kExpertGrid}) {
    int rest = rank;
    for (const Axis axis : grid) {
      coords[axis] = rest % sizes[axis];
      rest /= sizes[axis];
    }
  }
  return coords;
}

int rank_of(const MeshCoords& coords, const MeshSizes& sizes) {
  check_sizes(sizes);
  for (const Axis axis : kDenseGrid)
    if (coords[axis] < 0 || coords[axis] >= sizes[axis])
      fail("a mesh of {} has no coordinates tp {} dp {} pp {}", to_string(sizes), coords[Axis::Tp],
           coords[Axis::Dp], coords[Axis::Pp]);
  return place_along(kStageAxes | AxisSet{Axis::Pp}, coords, sizes);
}

int place_along(AxisSet axes, const MeshCoords& coords, const MeshSizes& sizes) {
  return color_and_key(axes, coords, sizes).key;
}

std::string experts_text(const MeshSizes& sizes) {
  std::string text;
  for (const Axis axis : {Axis::Ep, Axis::Etp})
    if (sizes[axis] > 1)
      text += fmt::format("{}{} {}", text.empty() ? ", experts of each layer on " : " x ", name_of(axis),
                          sizes[axis]);
  return text;
}

std::string axes_text(AxisSet axes) {
  std::string text;
  for (size_t axis = 0; axis < kAxes; ++axis)
    if (axes.has(static_cast<Axis>(axis)))
      text += fmt::format("{}{}", text.empty() ? "" : ".", name_of(static_cast<Axis>(axis)));
  return text;
}

std::string label_of(const MeshCoords& coords) {
  const std::string context = coords[Axis::Cp] > 0 ? fmt::format(".cp{}", coords[Axis::Cp]) : "";
  const std::string expert = coords[Axis::Ep] > 0 ? fmt::format(".ep{}", coords[Axis::Ep]) : "";
  const std::string part = coords[Axis::Etp] > 0 ? fmt::format(".etp{}", coords[Axis::Etp]) : "";
  return fmt::format("dp{}{}.pp{}.tp{}{}{}", coords[Axis::Dp], context, coords[Axis::Pp], coords[Axis::Tp],
                     expert, part);
}

Mesh::Mesh(Communicator& world, const MeshSizes& sizes) : world_(&world), sizes_(sizes) {
  check_sizes(sizes);
  check(world.size() == sizes.ranks(), "a mesh of {} needs {} ranks, but there are {}", to_string(sizes),
        sizes.ranks(), world.size());
  coords_ = coords_of(world.rank(), sizes);
  const AxisSet tensor{Axis::Tp};
  const AxisSet pipeline{Axis::Pp};
  for (const AxisSet axes :
       {tensor, kDataAxes, pipeline, kStageAxes, tensor | pipeline, kDataAxes | pipeline})
    comm(axes);
  for (const AxisSet axes : {AxisSet{Axis::Cp}, kExpertShareAxes})
    if (sizes.ranks(axes) > 1) comm(axes);
}

Mesh::Mesh(const MeshSizes& sizes, const MeshCoords& coords)
    : planned_(planned_communicator(rank_of(coords, sizes), sizes.ranks())),
      world_(planned_.get()),
      sizes_(sizes),
      coords_(coords_of(planned_->rank(), sizes)) {}

Communicator& Mesh::comm(AxisSet axes) const {
  if (const auto found = comms_.find(axes); found != comms_.end()) return *found->second;
  const auto place_of = [&](int rank) { return color_and_key(axes, coords_of(rank, sizes_), sizes_); };
  return *(comms_[axes] = planned_ ? planned_communicator(color_and_key(axes, coords_, sizes_).key,
                                                          sizes_.ranks(axes), axes.bits())
                                   : world_->split_by(place_of, axes.bits()));
}

}  // namespace trifold
