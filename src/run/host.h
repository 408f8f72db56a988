// Information about the host that a rank shares with other ranks.
#pragma once

#include "comm/communicator.h"
#include "ops/ops.h"

namespace trifold {

// Ranks of `world` that run on this host, this one included. Collective.
int ranks_on_host(Communicator& world);

// The cores of this host divided by its ranks, at least 1. Collective.
int fair_threads(Communicator& world);
// The largest `number` of all ranks. Collective.
int most_on_ranks(Communicator& world, int number);

// The cores of this host that remain if each of its ranks uses `threads`. Collective.
int spare_cores(Communicator& world, int threads);

// The rate of matrix products in `dtype` in flop/s, measured for about `seconds` with random data on the stream's
// cores.
double measure_gemm(const OpTable& ops, Stream& stream, DType dtype, int64_t m, int64_t n, int64_t k,
                    double seconds);

// The sum over ranks of rates measured at the same time: the peak of this run's cores. Collective.
double measure_peak(Communicator& world, const OpTable& ops, Stream& stream, DType dtype);

}  // namespace trifold
