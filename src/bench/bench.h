// Benchmarks: the training step, compared with the matrix-product rate of the same cores in the same run; parts of the
// step; and the collectives.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "models/model.h"
#include "ops/ops.h"
#include "plan/forecast/hardware.h"
#include "plan/forecast/node_cores.h"
#include "run/metrics.h"

namespace trifold {

class Communicator;

struct StepBench {
  double seconds = 0;  // median of the steps
  double tokens_per_second = 0;
  double flops = 0;            // model flop/s
  double gemm_flops = 0;       // matrix products, flop/s: the larger of the rates before and after the steps
  double share = 0;            // flops / gemm_flops
  MemoryReport memory;         // memory of one rank
  size_t measured_peak = 0;    // peak resident set of this process with all its ranks, bytes
  size_t resident_before = 0;  // resident set before the run was built
  int ranks_in_process = 1;
  double loss = 0;  // loss of the last step
  // Trainer::capture_note after the steps. If not empty, --enable-cuda-graph could not capture everything.
  std::string capture_note;
};

struct GemmBench {
  int64_t m = 0, n = 0, k = 0;
  double flops = 0;
};

// Attention of the configured model: one layer of one micro-batch on one rank while all ranks do the same. Times are
// means over ranks of medians.
struct AttentionBench {
  int64_t document = 0;  // mean tokens of the documents in a sequence, which do not attend to each other
  std::optional<int64_t> window = {};  // the positions that a position attends to, if it has a window
  double forward = 0, backward = 0;    // seconds
};

struct CommBench {
  size_t bytes = 0;
  double seconds = 0;  // one all_reduce over all ranks
};

// Seconds of the parts of a plan for one micro-batch on one rank while all ranks compute: means over ranks of medians
// over repetitions. Layers are timed several in a row, as a stage runs them, and divided. `trifold plan --costs` reads
// these times.
struct BlockBench {
  struct Times {
    double f = 0, i = 0, w = 0;
    double b = 0;  // whole backward; less than i + w if splitting it costs time
  };
  std::array<Times, kBlockKinds> kinds;  // [BlockKind]
  double message_latency = 0;            // seconds of a message of a few bytes between two ranks
  double bytes_per_second = 0;           // message as large as an activation
  double update_seconds = 0;             // per parameter: gradient norm, update, clearing of gradients
  NodeCores cores;                       // cores of the measuring ranks; default for devices
};

// Seconds of an exchange of `bytes` with the neighbouring rank, in the memory of `ops` and in both directions at once;
// 0 without a neighbour. Collective.
double exchange_seconds(Communicator& world, size_t bytes, int64_t repetitions, const OpTable& ops);

// Each benchmark is collective; the results are the same on every rank, except for memory.
StepBench bench_step(Communicator& world, const BenchConfig& config);
std::vector<GemmBench> bench_gemm(Communicator& world, const BenchConfig& config);
std::vector<CommBench> bench_comm(Communicator& world);
// Measures whole sequences, and sequences of documents of about an eighth of their length.
std::vector<AttentionBench> bench_attention(Communicator& world, const BenchConfig& config);
BlockBench bench_blocks(Communicator& world, const BenchConfig& config);
// The processor cores with which the ranks of `world` measure, `threads` each. A single rank stands for a machine that
// may be divided among as many ranks as it has cores; several ranks, for machines that all have as many ranks.
// Collective.
NodeCores measuring_cores(Communicator& world, int threads);

// Measures the rates of a rank on this machine while all ranks do the same, in the form that `plan --hardware` reads:
// products, the attention of the configured model, memory, sums and messages between ranks, which are assumed to share
// a node (a single rank measures these between two threads). Peaks are the measured rates, with shares of 1. Values
// that are not measured are copied from the built-in cpu or h100. On devices these include all values between ranks,
// because sums and messages of this benchmark pass through host memory.
Hardware bench_hardware(Communicator& world, const BenchConfig& config);

}  // namespace trifold
