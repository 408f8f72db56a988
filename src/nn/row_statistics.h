// Activations with statistics, passed between two blocks if the next one needs more than the activation. After the rows
// of the activation [rows, C] the same tensor holds `count` statistics in accumulate_type, such as a maximum and a sum
// for each row of a micro-batch. They are sent in the same message as the activation, as are statistics with its
// gradient.
#pragma once

#include "core/tensor.h"

namespace trifold {

// The shape of an activation of `rows` rows with `count` statistics; [rows, width] if `count` is 0.
Shape shape_with_statistics(int64_t rows, int64_t width, DType dtype, int64_t count);

// The two parts of a tensor that has that shape. Throws if it does not.
struct WithStatistics {
  WithStatistics(Tensor tensor, int64_t rows, int64_t count);

  Tensor all;
  Tensor activation;  // [rows, C]
  Tensor statistics;  // [count], accumulate_type of the activation's dtype
};

}  // namespace trifold
