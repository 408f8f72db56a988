// Boundary: the tensor between two blocks, which is sent in a message if they are on two ranks.
#pragma once

#include <cstdint>
#include <optional>

#include "core/tensor.h"

namespace trifold {

struct Boundary {
  // Rows that do not belong to positions: some for each sample, and some for the whole micro-batch.
  struct Rows {
    int64_t per_sample = 0, fixed = 0;
  };

  int64_t width = 0;  // elements of a row
  // Absent: each position of the micro-batch has a row, of which this rank holds every `row_parts`-th; more than one
  // under sequence parallelism.
  std::optional<Rows> rows = {};
  int row_parts = 1;
  // Statistics for each position of the micro-batch that follow the rows (nn/row_statistics.h).
  int row_statistics = 0;

  Shape shape(int64_t samples, int64_t positions, DType dtype) const;
  size_t bytes(int64_t samples, int64_t positions, DType dtype) const;
};

}  // namespace trifold
