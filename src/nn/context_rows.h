// Matrices of all positions of the samples whose positions are cut over the context-parallel ranks, in the two
// orders that attention needs: `in_order`, of the positions of one sample after another, and `by_rank`, the
// rows of a rank after those of the rank before, as collectives gather and scatter them.
#pragma once

#include "nn/layer.h"

namespace trifold {

// The rows of all positions of the micro-batch.
inline int64_t rows_of_all(const Run& run) { return run.batch->samples() * run.batch->rows.length(); }
// Copies one into the other; both [rows_of_all, C], of any type.
void to_order(Run& run, Tensor in_order, Tensor by_rank);
void to_ranks(Run& run, Tensor by_rank, Tensor in_order);

// Copies `columns` columns of x from `x_column` to those of y from `y_column`; both have the rows here.
void move_columns(Run& run, Tensor y, int64_t y_column, Tensor x, int64_t x_column, int64_t columns);

}  // namespace trifold
