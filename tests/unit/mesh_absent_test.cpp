#include <gtest/gtest.h>

#include "comm/absent_comm.h"
#include "mesh/mesh.h"

namespace trifold::test {
namespace {

TEST(AbsentMesh, HasTheCommunicatorsOfOneRank) {
  const MeshSizes sizes{{Axis::Tp, 4}, {Axis::Dp, 96}, {Axis::Pp, 8}};
  const std::unique_ptr<Communicator> world = absent_world(1234, sizes.ranks(), {});
  const Mesh mesh(*world, sizes);
  EXPECT_EQ(mesh.comm({Axis::Tp}).size(), 4);
  EXPECT_EQ(mesh.comm(kDataAxes).size(), 96);
  EXPECT_EQ(mesh.comm({Axis::Pp}).rank(), mesh.coord(Axis::Pp));
  EXPECT_EQ(mesh.comm(kDataAxes).rank(), mesh.coord(Axis::Dp));
  EXPECT_EQ(mesh.comm(kDataAxes | AxisSet{Axis::Pp}).size(), 96 * 8);
}

}  // namespace
}  // namespace trifold::test
