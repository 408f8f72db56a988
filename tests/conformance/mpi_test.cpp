// The communicator's contract over MPI; this program is one rank, started by mpiexec.
#include "comm/mpi_module.h"
#include "conformance/communicator.h"

namespace trifold::test {
namespace {

struct MpiRanks {
  void run(const std::function<void(Communicator&)>& rank_main, std::chrono::milliseconds timeout) {
    if (!mpi_launch_size()) GTEST_SKIP() << "not started by mpiexec";
    const auto world = connect_mpi(timeout);
    try {
      rank_main(*world);
    } catch (const Error& error) {
      world->abort(error.what());
      throw;
    }
    if (!::testing::Test::HasFailure()) return;
    world->abort("a test failed");
  }
};

INSTANTIATE_COMMUNICATOR_CONFORMANCE(Mpi, ::testing::Types<MpiRanks>);

TEST(MpiRanks, WorldIsThatOfTheLauncher) {
  const auto size = mpi_launch_size();
  if (!size) GTEST_SKIP() << "not started by mpiexec";
  const auto world = connect_mpi(kLong);
  EXPECT_EQ(world->size(), *size);
  EXPECT_EQ(world->backend(), "mpi");
}

}  // namespace
}  // namespace trifold::test
