// Matrices with the rows of all positions if these are cut over the context-parallel ranks, in the two orders
// that attention needs: `in_order`, by position within each sample, and `by_rank`, the rows of one rank after
// those of the previous rank, as collectives gather and scatter them.
#pragma once

#include "nn/layer.h"

namespace trifold {

// The rows of all positions of the micro-batch.
inline int64_t rows_of_all(const Run& run) { return run.batch->samples() * run.batch->rows.length(); }
// Copy one order into the other; both are [rows_of_all, C], of any type.
void to_order(Run& run, Tensor in_order, Tensor by_rank);
void to_ranks(Run& run, Tensor by_rank, Tensor in_order);

// Copies `columns` columns of x, from `x_column` on, to y, from `y_column` on; both have this rank's rows.
void move_columns(Run& run, Tensor y, int64_t y_column, Tensor x, int64_t x_column, int64_t columns);

}  // namespace trifold
