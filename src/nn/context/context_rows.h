// Context parallelism cuts the positions of each sample over the ranks of the context axis. Attention needs matrices
// with the rows of all positions in two orders: `in_order`, by sample and then by position, as operations read them;
// and `by_rank`, all rows of rank 0, then all rows of rank 1 and so on, as collectives gather and scatter them.
#pragma once

#include "nn/layer.h"

namespace trifold {

// Number of rows of the micro-batch over all context-parallel ranks.
inline int64_t rows_of_all(const Run& run) { return run.batch->samples() * run.batch->rows.length(); }
// Convert by_rank to in_order, and in_order to by_rank. Both matrices are [rows_of_all, C], of any type.
void to_order(Run& run, Tensor in_order, Tensor by_rank);
void to_ranks(Run& run, Tensor by_rank, Tensor in_order);

// Copies columns [x_column, x_column + columns) of x to columns [y_column, y_column + columns) of y. Both matrices have
// this rank's rows.
void move_columns(Run& run, Tensor y, int64_t y_column, Tensor x, int64_t x_column, int64_t columns);
// Rounds x to the type of the run and copies it to y, from column `y_column` on. Both have this rank's rows.
void round_into_columns(Run& run, Tensor y, int64_t y_column, Tensor x);

}  // namespace trifold
