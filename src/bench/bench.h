// Benchmarks: the training step against the matrix-product rate of the same cores in the same run, and the
// collectives.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "models/model.h"
#include "plan/hardware.h"
#include "run/metrics.h"

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
  // Trainer::capture_note after the steps. Not empty: --enable-cuda-graph did not do all that it says.
  std::string capture_note;
};

struct GemmBench {
  int64_t m = 0, n = 0, k = 0;
  double flops = 0;
};

// Attention of the configured model, one layer of one micro-batch on one rank while all ranks do the same:
// means over ranks of medians.
struct AttentionBench {
  int64_t document = 0;  // mean tokens of the documents in a sequence, which do not see each other
  double forward = 0, backward = 0;  // seconds
};

struct CommBench {
  size_t bytes = 0;
  double seconds = 0;  // of one all_reduce over all ranks
};

// Seconds of the parts that a plan is made of, for one micro-batch on one rank while all ranks compute: means
// over ranks of medians over repetitions. A layer's are a share of several in a row, as a stage runs them.
// What `trifold plan --costs` reads.
struct BlockBench {
  struct Times {
    double f = 0, i = 0, w = 0;
    double b = 0;  // a whole backward; less than i + w where taking it apart costs
  };
  std::array<Times, kBlockKinds> kinds;  // [BlockKind]
  double message_latency = 0;            // seconds of a message of a few bytes between two ranks
  double bytes_per_second = 0;           // of one as large as an activation
  double update_seconds = 0;             // of one parameter: gradient norm, update, clearing of gradients
};

// Seconds of an exchange of `bytes` with the neighbour, both ways at once; 0 with nobody to talk to.
// Collective.
double exchange_seconds(Communicator& world, size_t bytes, int64_t repetitions);

// The middle one, of an even number the larger of both; 0 of none.
double median(std::vector<double> values);

// Each is collective; the results are the same on every rank but for memory.
StepBench bench_step(Communicator& world, const BenchConfig& config);
std::vector<GemmBench> bench_gemm(Communicator& world, const BenchConfig& config);
std::vector<CommBench> bench_comm(Communicator& world);
// Of whole sequences, and of sequences cut into documents of an eighth of them.
std::vector<AttentionBench> bench_attention(Communicator& world, const BenchConfig& config);
BlockBench bench_blocks(Communicator& world, const BenchConfig& config);
// What a rank reaches of this machine while all ranks do the same, as `plan --hardware` reads it: products,
// the attention of the configured model, memory, sums and messages between ranks, which are taken to share a
// node. Peaks are what was reached, and shares 1. What is not measured is that of the built-in cpu or h100; of
// devices that is all between ranks, whose sums and messages here are of the host's memory.
Hardware bench_hardware(Communicator& world, const BenchConfig& config);

}  // namespace trifold
