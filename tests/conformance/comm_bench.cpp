// Latency and bandwidth of all_reduce: `comm_bench [ranks]` over thread ranks, `mpiexec -n 2 comm_bench` over
// MPI.
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "comm/mpi_module.h"
#include "support/ranks.h"

namespace {

using namespace trifold;
using Clock = std::chrono::steady_clock;

double seconds_per_call(Communicator& comm, Tensor tensor, int calls) {
  test::OwnStream stream;
  comm.all_reduce(tensor, Reduce::Max, stream);
  comm.barrier();
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) comm.all_reduce(tensor, Reduce::Max, stream);
  return std::chrono::duration<double>(Clock::now() - start).count() / calls;
}

void measure(Communicator& comm) {
  for (int64_t bytes : {int64_t{4}, int64_t{4'000}, int64_t{1'000'000}, int64_t{100'000'000}}) {
    std::vector<float> numbers(static_cast<size_t>(bytes / 4), 1.0F + static_cast<float>(comm.rank()));
    const int calls = static_cast<int>(std::clamp<int64_t>(200'000'000 / bytes, 5, 20'000));
    const double time = seconds_per_call(comm, {numbers.data(), DType::F32, {bytes / 4}}, calls);
    if (comm.rank() == 0)
      std::cout << fmt::format("{} all_reduce, {} ranks, {:>9} bytes: {:>10.1f} us  {:>7.2f} GB/s\n",
                               comm.backend(), comm.size(), bytes, time * 1e6,
                               static_cast<double>(bytes) / time / 1e9);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (mpi_launch_size())
    measure(*connect_mpi());
  else
    test::run_ranks(argc > 1 ? std::atoi(argv[1]) : 2, measure);
}
