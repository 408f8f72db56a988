// Mean loss of a model over a range of samples, shared out over the data-parallel ranks.
#pragma once

#include <span>

#include "data/read_ahead.h"
#include "pipeline/executor.h"
#include "train/replica.h"

namespace trifold {

// This rank's share of the loss sums over samples [0, end): blocks of micro-batch size go to the
// data-parallel ranks in turn, the last block may be smaller. `buffer` holds one micro-batch.
LossSums forward_samples(Executor& executor, const Mesh& mesh, const DataSource& source, BatchBuffer& buffer,
                         int64_t end);

// Makes of each rank's sums those over the data and pipeline axes; each sample is counted once whatever the
// mesh. Collective.
void sum_over_ranks(Replica& replica, std::span<LossSums> sums);

// Mean loss over the first `samples` samples. Builds the executor it needs. Collective.
LossSums evaluate_model(Replica& replica, const DataSource& source, int64_t micro_batch_size,
                        int64_t samples);

}  // namespace trifold
