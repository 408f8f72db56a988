#include "mesh/mesh.h"

#include <gtest/gtest.h>

#include <vector>

#include "support/ranks.h"

namespace trifold::test {
namespace {

// tp 2 x dp 2 x pp 3, written out: tensor fastest, then data, pipeline slowest.
TEST(Mesh, RankOrderIsTensorDataPipeline) {
  const MeshSizes sizes{.tp = 2, .dp = 2, .pp = 3};
  EXPECT_EQ(coords_of(0, sizes), (MeshCoords{0, 0, 0}));
  EXPECT_EQ(coords_of(1, sizes), (MeshCoords{1, 0, 0}));
  EXPECT_EQ(coords_of(2, sizes), (MeshCoords{0, 1, 0}));
  EXPECT_EQ(coords_of(7, sizes), (MeshCoords{1, 1, 1}));
  EXPECT_EQ(coords_of(8, sizes), (MeshCoords{0, 0, 2}));
  for (int rank = 0; rank < sizes.ranks(); ++rank) EXPECT_EQ(rank_of(coords_of(rank, sizes), sizes), rank);
}

TEST(Mesh, RefusesWhatIsNotThere) {
  const MeshSizes sizes{.tp = 2, .dp = 1, .pp = 2};
  EXPECT_THROW(coords_of(4, sizes), Error);
  EXPECT_THROW(coords_of(-1, sizes), Error);
  EXPECT_THROW(coords_of(0, MeshSizes{.tp = 0}), Error);
  EXPECT_THROW(rank_of({.tp = 0, .dp = 1, .pp = 0}, sizes), Error);
  EXPECT_THROW(run_ranks(2, [&](Communicator& comm) { Mesh(comm, sizes); }), Error);
}

TEST(Mesh, PlannedPlacesHaveCommunicatorsThatOnlyDryStreamsMayUse) {
  const Mesh mesh({.tp = 8, .dp = 6, .pp = 64}, {.tp = 3, .dp = 2, .pp = 63});
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
  EXPECT_THROW(Mesh({.tp = 2}, {.tp = 2}), Error);
}

std::vector<int32_t> members_of(Communicator& comm, int rank) {
  OwnStream stream;
  int32_t mine = rank;
  std::vector<int32_t> all(static_cast<size_t>(comm.size()));
  comm.all_gather({all.data(), DType::I32, {comm.size()}}, {&mine, DType::I32, {1}}, stream);
  return all;
}

TEST(Mesh, CommunicatorsJoinTheRanksThatDifferAlongTheAxes) {
  const MeshSizes sizes{.tp = 2, .dp = 2, .pp = 2};
  run_ranks(8, [&](Communicator& world) {
    const Mesh mesh(world, sizes);
    const MeshCoords at = mesh.coords();
    const auto rank = [&](int tp, int dp, int pp) { return rank_of({tp, dp, pp}, sizes); };
    const auto members = [&](AxisSet axes) { return members_of(mesh.comm(axes), world.rank()); };
    using Ranks = std::vector<int32_t>;
    EXPECT_EQ(members({Axis::Tp}), (Ranks{rank(0, at.dp, at.pp), rank(1, at.dp, at.pp)}));
    EXPECT_EQ(members({Axis::Dp}), (Ranks{rank(at.tp, 0, at.pp), rank(at.tp, 1, at.pp)}));
    EXPECT_EQ(members({Axis::Pp}), (Ranks{rank(at.tp, at.dp, 0), rank(at.tp, at.dp, 1)}));
    EXPECT_EQ(members({Axis::Dp, Axis::Tp}),
              (Ranks{rank(0, 0, at.pp), rank(1, 0, at.pp), rank(0, 1, at.pp), rank(1, 1, at.pp)}));
    EXPECT_EQ(members({}), Ranks{world.rank()});
    EXPECT_EQ(members({Axis::Tp, Axis::Dp, Axis::Pp}).size(), 8U);
    EXPECT_EQ(&mesh.comm({Axis::Tp, Axis::Dp}), &mesh.comm({Axis::Dp, Axis::Tp}));
    EXPECT_EQ(label_of(mesh.coords()), fmt::format("dp{}.pp{}.tp{}", at.dp, at.pp, at.tp));
    EXPECT_EQ(mesh.size(Axis::Dp), 2);
    EXPECT_EQ(mesh.coord(Axis::Pp), world.rank() / 4);
  });
}

}  // namespace
}  // namespace trifold::test
