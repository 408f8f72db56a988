// Benchmarks: the training step against the matrix-product rate of the same cores in the same run, and the
// collectives.
#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "train/metrics.h"

namespace trifold {

class Communicator;

struct StepBench {
  double seconds = 0;  // median of the steps
  double tokens_per_second = 0;
  double flops = 0;            // model flop/s
  double gemm_flops = 0;       // measured before and after the steps, the larger
  double share = 0;            // flops / gemm_flops
  MemoryReport memory;         // of one rank
  size_t measured_peak = 0;    // peak resident set of this process, bytes; all its ranks together
  size_t resident_before = 0;  // resident set before the run was built
  int ranks_in_process = 1;
  double loss = 0;  // of the last step
};

struct GemmBench {
  int64_t m = 0, n = 0, k = 0;
  double flops = 0;
};

struct CommBench {
  size_t bytes = 0;
  double seconds = 0;  // of one all_reduce over all ranks
};

// Each is collective; the results are the same on every rank but for memory.
StepBench bench_step(Communicator& world, const BenchConfig& config);
std::vector<GemmBench> bench_gemm(Communicator& world, const BenchConfig& config);
std::vector<CommBench> bench_comm(Communicator& world);

}  // namespace trifold
