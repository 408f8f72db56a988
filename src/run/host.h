// What a rank must know about the machine it shares with others.
#pragma once

#include "comm/communicator.h"
#include "ops/ops.h"

namespace trifold {

// Ranks of `world` that run on this host, this one included. Collective.
int ranks_on_host(Communicator& world);

// The cores of this host divided by its ranks, at least 1. Collective.
int fair_threads(Communicator& world);

// The cores of this host that its ranks leave when each uses `threads`. Collective.
int spare_cores(Communicator& world, int threads);

// Rate of matrix products in `dtype` in flop/s, measured for about `seconds` with random data on the stream's
// cores.
double measure_gemm(const OpTable& ops, Stream& stream, DType dtype, int64_t m, int64_t n, int64_t k,
                    double seconds);

// The sum over ranks of what each measures at the same time: what the cores of this run can do at most.
// Collective.
double measure_peak(Communicator& world, const OpTable& ops, Stream& stream, DType dtype);

}  // namespace trifold
