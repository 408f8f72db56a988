// Every element of a model lies in flat buffers where it is counted and saved once, on every mesh.
#include "data_parallel/flat_layout.h"

#include <gtest/gtest.h>

#include <map>

#include "nn/layer.h"

namespace trifold::test {
namespace {

// A parameter of every kind that layers declare, and one of which each data-parallel rank has a part of its
// own. Every second block has frozen ones.
void add_every_kind(ParamList& params, BlockBuilder& builder, int number) {
  const std::string block = std::to_string(number);
  const Mesh& mesh = builder.mesh();
  ParamSpec own;
  own.shard.name = block + ".own";
  own.shard.global = {12, 90};
  own.shard.local = even_part(own.shard.global, 0, mesh.coord(Axis::Dp), mesh.size(Axis::Dp));
  own.shard.replicated = {Axis::Tp, Axis::Cp};
  own.block = number;
  params.add(own);
  ParamSpec experts = own;
  experts.shard.name = block + ".experts";
  experts.shard.local = even_part(own.shard.global, 0, mesh.coord(Axis::Ep), mesh.size(Axis::Ep));
  experts.shard.replicated = {Axis::Etp, Axis::Edp};
  experts.shard.partial = kExpertDataAxes;
  params.add(experts);
  builder.freeze(builder.sharded(block + ".rows", {8, 100}, 0, {}, true), number % 2 == 1);
  builder.sharded(block + ".columns", {30, 8}, 1, {}, true);
  builder.sharded(block + ".shared_heads", {4, 700}, 0, {}, true, 2);
  builder.freeze(builder.replicated(block + ".gain", {1300}, {}, false), number % 2 == 1);
  builder.replicated(block + ".inside", {24}, {}, false, true);
}

struct Layout {
  MeshSizes sizes;
  int group = 1;            // data-parallel ranks that shard
  bool is_sharded = false;  // or each holds all
  bool sequence_parallel = false;
};

// The boxes of each parameter that the ranks of a mesh count.
std::map<std::string, std::vector<Rect>> counted(const Layout& in, std::map<std::string, Shape>& shapes) {
  std::map<std::string, std::vector<Rect>> boxes;
  for (int rank = 0; rank < in.sizes.ranks(); ++rank) {
    const Mesh mesh(in.sizes, coords_of(rank, in.sizes));
    ParamList params;
    ReportList reports;
    std::vector<int> mine;
    for (int block = 0; block < 2 * in.sizes[Axis::Pp]; ++block) {
      BlockBuilder builder(params, reports, mesh, block, 1, in.sequence_parallel);
      add_every_kind(params, builder, block);
      if (block / 2 == mesh.coord(Axis::Pp)) mine.push_back(block);
    }
    params.hold_blocks(mine);
    const FlatLayout layout(params, {mine}, 1, in.sizes, in.group);
    for (const FlatLayout::Unit& unit : layout.units()) {
      const int slices = in.is_sharded ? unit.slices : 1;
      const auto slice = in.is_sharded
                             ? std::optional(place_along(unit.data, mesh.coords(), in.sizes) % slices)
                             : std::nullopt;
      for (const FlatLayout::Segment& segment : layout.segments(unit, slice)) {
        const ShardSpec& spec = params[segment.id].shard;
        shapes[spec.name] = spec.global;
        if (!counts_here(spec, mesh.coords(), in.sizes, slices)) continue;
        for (const Rect& rect : rects_of_range(spec.local, segment.first, segment.first + segment.count))
          boxes[spec.name].push_back(rect);
      }
    }
  }
  return boxes;
}

TEST(FlatLayout, EveryElementIsCountedOnce) {
  const auto mesh = [](int tp, int dp, int pp) {
    return MeshSizes{{Axis::Tp, tp}, {Axis::Dp, dp}, {Axis::Pp, pp}};
  };
  const std::vector<MeshSizes> meshes{
      mesh(1, 1, 1),
      mesh(2, 1, 1),
      mesh(4, 1, 1),
      mesh(1, 4, 1),
      mesh(1, 1, 3),
      mesh(2, 2, 2),
      mesh(4, 4, 1),
      mesh(4, 6, 2),
      {{Axis::Tp, 2}, {Axis::Cp, 3}, {Axis::Dp, 2}, {Axis::Pp, 2}, {Axis::Etp, 2}, {Axis::Ep, 3}}};
  for (const MeshSizes& sizes : meshes)
    for (const bool sequence_parallel : {false, true})
      for (const bool is_sharded : {false, true})
        for (int group = 1; group <= sizes.ranks(kDataAxes); ++group) {
          if (sizes.ranks(kDataAxes) % group != 0) continue;
          SCOPED_TRACE(fmt::format("tp {} cp {} dp {} pp {}, groups of {}, sharded {}, sequence parallel {}",
                                   sizes[Axis::Tp], sizes[Axis::Cp], sizes[Axis::Dp], sizes[Axis::Pp], group,
                                   is_sharded, sequence_parallel));
          std::map<std::string, Shape> shapes;
          const auto boxes = counted({sizes, group, is_sharded, sequence_parallel}, shapes);
          EXPECT_EQ(shapes.size(), static_cast<size_t>(14 * sizes[Axis::Pp]));
          for (const auto& [name, shape] : shapes) {
            ASSERT_TRUE(boxes.contains(name)) << name;
            EXPECT_NO_THROW(check_exact_cover(name, shape, boxes.at(name)));
          }
        }
}

// Buffers that hold nothing for frozen parameters are prefixes of the layout.
TEST(FlatLayout, FrozenUnitsFollowAllOthers) {
  const Mesh mesh{MeshSizes{{Axis::Dp, 4}}, MeshCoords()};
  ParamList params;
  ReportList reports;
  for (int block = 0; block < 4; ++block) {
    BlockBuilder builder(params, reports, mesh, block, 1);
    add_every_kind(params, builder, block);
  }
  const FlatLayout layout(params, {{0, 1, 2, 3}}, 1, mesh.sizes(), 4);
  int64_t trained = 0, trained_shard = 0, frozen = 0;
  for (const FlatLayout::Unit& unit : layout.units()) {
    for (const ParamId id : unit.params) EXPECT_EQ(params[id].frozen, unit.frozen);
    if (unit.frozen) {
      EXPECT_GE(unit.begin, layout.trained_elements());
      EXPECT_GE(unit.shard_begin, layout.trained_shard_elements());
      frozen += unit.elements();
    } else {
      trained += unit.elements();
      trained_shard += unit.slice_elements();
    }
  }
  EXPECT_GT(frozen, 0);
  EXPECT_EQ(layout.trained_elements(), trained);
  EXPECT_EQ(layout.trained_shard_elements(), trained_shard);
  EXPECT_EQ(layout.elements(), trained + frozen);
  // The units of a block follow each other, whether frozen or not.
  for (int block = 0; block < 4; ++block) {
    const auto [first, end] = layout.units_ending_at(block);
    for (int unit = first; unit < end; ++unit)
      EXPECT_EQ(layout.units()[static_cast<size_t>(unit)].lowest_block, block);
  }
}

}  // namespace
}  // namespace trifold::test
