// The communicator's contract for tensors on a device: with thread ranks that share it, and with NCCL. NCCL needs a GPU
// for each rank: one per process under mpiexec, else a single one. Tests that the machine cannot run are skipped with
// the reason.
#include <string_view>

#include "comm/mpi_module.h"
#include "conformance/communicator.h"
#include "conformance/staged.h"
#include "support/device_ops.h"

namespace trifold::test {
namespace {

// The failures of a rank wake the others.
void run_staged(Communicator& comm, const OpTable& ops, const std::function<void(Communicator&)>& rank_main) {
  Staged staged(comm, ops);
  try {
    rank_main(staged);
  } catch (const Error& error) {
    comm.abort(error.what());
    throw;
  }
  if (::testing::Test::HasFailure()) comm.abort("an expectation was not met");
}

struct ThreadsOfADevice {
  void run(const std::function<void(Communicator&)>& rank_main, std::chrono::milliseconds timeout) {
    std::string why;
    const OpTable* ops = device_ops(why);
    if (ops == nullptr) GTEST_SKIP() << why;
    const auto staged = [&](Communicator& comm) { run_staged(comm, *ops, rank_main); };
    run_ranks(3, staged, {.timeout = timeout, .ops = ops});
  }
};

struct NcclRanks {
  void run(const std::function<void(Communicator&)>& rank_main, std::chrono::milliseconds timeout) {
    std::string why;
    const OpTable* first = device_ops(why);
    if (first == nullptr) GTEST_SKIP() << why;
    const int devices = cuda_device_count();
    const int ranks = mpi_launch_size().value_or(1);
    if (std::string_view(first->name) == "fake") GTEST_SKIP() << "a fake device has no NCCL";
    if (ranks > devices) GTEST_SKIP() << "NCCL wants a GPU for each of " << ranks << " ranks: " << devices;
    // The deadline under test is NCCL's; the host's must not come before it.
    const auto over = [&](Communicator& host) {
      const int device = host.rank();
      const auto nccl = connect_nccl(host, device, timeout);
      run_staged(*nccl, cuda_ops(device), rank_main);
    };
    if (!mpi_launch_size()) return run_ranks(1, over, {.timeout = kLong});
    const auto host = connect_mpi(kLong);
    over(*host);
  }
};

INSTANTIATE_COMMUNICATOR_CONFORMANCE(Threads, ::testing::Types<ThreadsOfADevice>);
INSTANTIATE_COMMUNICATOR_CONFORMANCE(Nccl, ::testing::Types<NcclRanks>);

}  // namespace
}  // namespace trifold::test
