#include "mesh/mesh.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/ranks.h"

namespace trifold::test {
namespace {

MeshSizes sizes_of(int tp, int dp, int pp) { return {{Axis::Tp, tp}, {Axis::Dp, dp}, {Axis::Pp, pp}}; }
MeshCoords at_place(int tp, int dp, int pp) { return {{Axis::Tp, tp}, {Axis::Dp, dp}, {Axis::Pp, pp}}; }

// tp 2 x dp 2 x pp 3, written out: tensor fastest, then data, pipeline slowest.
TEST(Mesh, RankOrderIsTensorDataPipeline) {
  const MeshSizes sizes = sizes_of(2, 2, 3);
  const auto expect_at = [&](int rank, int tp, int dp, int pp) {
    const MeshCoords at = coords_of(rank, sizes);
    EXPECT_EQ(at[Axis::Tp], tp);
    EXPECT_EQ(at[Axis::Cp], 0);
    EXPECT_EQ(at[Axis::Dp], dp);
    EXPECT_EQ(at[Axis::Pp], pp);
    EXPECT_EQ(rank_of(at_place(tp, dp, pp), sizes), rank);
  };
  expect_at(0, 0, 0, 0);
  expect_at(1, 1, 0, 0);
  expect_at(2, 0, 1, 0);
  expect_at(7, 1, 1, 1);
  expect_at(8, 0, 0, 2);
  for (int rank = 0; rank < sizes.ranks(); ++rank) EXPECT_EQ(rank_of(coords_of(rank, sizes), sizes), rank);
}

// The context axis lies between tensor and data; experts read the same ranks of a stage in their own grid.
TEST(Mesh, TwoGridsOverOneSetOfRanks) {
  const MeshSizes sizes{{Axis::Tp, 2}, {Axis::Cp, 2}, {Axis::Dp, 2}, {Axis::Pp, 2}, {Axis::Ep, 4}};
  EXPECT_EQ(sizes.ranks(), 16);
  EXPECT_EQ(sizes[Axis::Etp], 1);
  EXPECT_EQ(sizes[Axis::Edp], 2);
  for (int rank = 0; rank < sizes.ranks(); ++rank) {
    const MeshCoords at = coords_of(rank, sizes);
    EXPECT_EQ(at[Axis::Tp] + 2 * (at[Axis::Cp] + 2 * (at[Axis::Dp] + 2 * at[Axis::Pp])), rank);
    EXPECT_EQ(at[Axis::Ep] + 4 * (at[Axis::Edp] + 2 * at[Axis::Pp]), rank);
    EXPECT_EQ(at[Axis::Etp], 0);
  }
  const Mesh mesh(sizes, coords_of(13, sizes));  // 13 = 1 + 2 * (0 + 2 * (1 + 2 * 1)): ep 1, edp 1, pp 1
  EXPECT_EQ(mesh.comm({Axis::Ep}).size(), 4);
  EXPECT_EQ(mesh.comm({Axis::Ep}).rank(), 1);
  EXPECT_EQ(mesh.comm({Axis::Edp, Axis::Pp}).size(), 4);
  EXPECT_EQ(mesh.comm({Axis::Edp, Axis::Pp}).rank(), 3);
  EXPECT_EQ(mesh.comm(kDataAxes).rank(), 2);
  EXPECT_THROW(mesh.comm({Axis::Dp, Axis::Ep}), Error);
}

// Ranks that cut an expert are next to each other.
TEST(Mesh, RanksThatShareExperts) {
  const MeshSizes sizes{{Axis::Tp, 2}, {Axis::Cp, 3},  {Axis::Dp, 2},
                        {Axis::Pp, 2}, {Axis::Etp, 2}, {Axis::Ep, 3}};
  EXPECT_EQ(sizes[Axis::Edp], 2);
  for (int rank = 0; rank < sizes.ranks(); ++rank) {
    const MeshCoords at = coords_of(rank, sizes);
    EXPECT_EQ(at[Axis::Etp] + 2 * (at[Axis::Ep] + 3 * (at[Axis::Edp] + 2 * at[Axis::Pp])), rank);
    EXPECT_EQ(place_along(kExpertShareAxes, at, sizes), rank % 6);
  }
  const Mesh mesh(sizes, coords_of(17, sizes));
  EXPECT_EQ(mesh.comm(kExpertShareAxes).size(), 6);
  EXPECT_EQ(mesh.comm(kExpertShareAxes).rank(), 5);
  EXPECT_EQ(label_of(mesh.coords()), "dp0.cp2.pp1.tp1.ep2.etp1");
  EXPECT_EQ(experts_text(sizes), ", experts of each layer on ep 3 x etp 2");
  EXPECT_EQ(experts_text(sizes_of(2, 1, 2)), "");
}

TEST(Mesh, WithoutExpertsTheirDataAxisIsTheStage) {
  EXPECT_EQ(sizes_of(2, 3, 2)[Axis::Edp], 6);
  EXPECT_EQ(sizes_of(1, 1, 1)[Axis::Edp], 1);
}

TEST(Mesh, RejectsUnknownAxesAndRanks) {
  const MeshSizes sizes = sizes_of(2, 1, 2);
  EXPECT_THROW(coords_of(4, sizes), Error);
  EXPECT_THROW(coords_of(-1, sizes), Error);
  EXPECT_THROW(coords_of(0, sizes_of(0, 1, 1)), Error);
  EXPECT_THROW(rank_of(at_place(0, 1, 0), sizes), Error);
  EXPECT_THROW(run_ranks(2, [&](Communicator& comm) { Mesh(comm, sizes); }), Error);
  EXPECT_THROW(coords_of(0, MeshSizes{{Axis::Dp, 2}, {Axis::Ep, 3}}), Error);
  EXPECT_THROW(coords_of(0, MeshSizes{{Axis::Dp, 4}, {Axis::Ep, 2}, {Axis::Edp, 3}}), Error);
}

TEST(Mesh, PlannedPlacesHaveCommunicatorsThatOnlyDryStreamsMayUse) {
  const Mesh mesh(sizes_of(8, 6, 64), at_place(3, 2, 63));
  EXPECT_EQ(mesh.size(Axis::Pp), 64);
  EXPECT_EQ(mesh.coord(Axis::Tp), 3);
  EXPECT_EQ(mesh.world().rank(), 3 + 8 * (2 + 6 * 63));
  EXPECT_EQ(mesh.comm({Axis::Tp}).size(), 8);
  EXPECT_EQ(mesh.comm({Axis::Tp}).rank(), 3);
  EXPECT_EQ(mesh.comm({Axis::Dp, Axis::Tp}).size(), 48);
  EXPECT_EQ(mesh.comm({Axis::Dp, Axis::Tp}).rank(), 3 + 8 * 2);
  ThreadPool pool(1);
  Stream dry(Stream::Mode::Dry, pool);
  mesh.comm({Axis::Tp}).all_reduce({nullptr, DType::F32, {4}}, Reduce::Sum, dry);
  OwnStream real;
  EXPECT_THROW(mesh.comm({Axis::Tp}).all_reduce({nullptr, DType::F32, {4}}, Reduce::Sum, real), Error);
  EXPECT_THROW(mesh.world().barrier(), Error);
  EXPECT_THROW(Mesh({{Axis::Tp, 2}}, {{Axis::Tp, 2}}), Error);
}

std::vector<int32_t> members_of(Communicator& comm, int rank) {
  OwnStream stream;
  int32_t mine = rank;
  std::vector<int32_t> all(static_cast<size_t>(comm.size()));
  comm.all_gather({all.data(), DType::I32, {comm.size()}}, {&mine, DType::I32, {1}}, stream);
  return all;
}

TEST(Mesh, CommunicatorsJoinTheRanksThatDifferAlongTheAxes) {
  const MeshSizes sizes = sizes_of(2, 2, 2);
  run_ranks(8, [&](Communicator& world) {
    const Mesh mesh(world, sizes);
    const int tp = mesh.coord(Axis::Tp);
    const int dp = mesh.coord(Axis::Dp);
    const int pp = mesh.coord(Axis::Pp);
    const auto rank = [&](int t, int d, int p) { return rank_of(at_place(t, d, p), sizes); };
    const auto members = [&](AxisSet axes) { return members_of(mesh.comm(axes), world.rank()); };
    using Ranks = std::vector<int32_t>;
    EXPECT_EQ(members({Axis::Tp}), (Ranks{rank(0, dp, pp), rank(1, dp, pp)}));
    EXPECT_EQ(members({Axis::Dp}), (Ranks{rank(tp, 0, pp), rank(tp, 1, pp)}));
    EXPECT_EQ(members({Axis::Pp}), (Ranks{rank(tp, dp, 0), rank(tp, dp, 1)}));
    EXPECT_EQ(members({Axis::Dp, Axis::Tp}),
              (Ranks{rank(0, 0, pp), rank(1, 0, pp), rank(0, 1, pp), rank(1, 1, pp)}));
    EXPECT_EQ(members({}), Ranks{world.rank()});
    EXPECT_EQ(members({Axis::Tp, Axis::Dp, Axis::Pp}).size(), 8U);
    EXPECT_EQ(&mesh.comm({Axis::Tp, Axis::Dp}), &mesh.comm({Axis::Dp, Axis::Tp}));
    EXPECT_EQ(label_of(mesh.coords()), fmt::format("dp{}.pp{}.tp{}", dp, pp, tp));
    EXPECT_EQ(mesh.size(Axis::Dp), 2);
    EXPECT_EQ(mesh.coord(Axis::Pp), world.rank() / 4);
  });
}

// tp 2 x cp 2 x dp 2, written out. Along cp ranks share a sample, along cp and dp gradients.
TEST(Mesh, ContextRanksLieBetweenTensorAndDataRanks) {
  using Ranks = std::vector<int32_t>;
  const std::vector<Ranks> context{{0, 2}, {1, 3}, {0, 2}, {1, 3}, {4, 6}, {5, 7}, {4, 6}, {5, 7}};
  const MeshSizes sizes{{Axis::Tp, 2}, {Axis::Cp, 2}, {Axis::Dp, 2}};
  run_ranks(8, [&](Communicator& world) {
    const Mesh mesh(world, sizes);
    const int rank = world.rank();
    const int32_t first = rank % 2;
    EXPECT_EQ(members_of(mesh.comm({Axis::Cp}), rank), context[static_cast<size_t>(rank)]);
    EXPECT_EQ(members_of(mesh.comm(kDataAxes), rank), (Ranks{first, first + 2, first + 4, first + 6}));
    EXPECT_EQ(label_of(mesh.coords()),
              fmt::format("dp{}{}.pp0.tp{}", rank / 4, rank / 2 % 2 == 1 ? ".cp1" : "", rank % 2));
  });
  const SequenceRows rows = rows_here(RowCut::BothEnds, 16, sizes, coords_of(3, sizes));
  EXPECT_EQ(rows.runs()[0].begin, 4);
  EXPECT_EQ(rows.runs()[1].begin, 8);
}

}  // namespace
}  // namespace trifold::test
