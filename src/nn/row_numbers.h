// Activations with numbers, passed between two blocks if the next one needs more than the activation. After the rows of
// the activation [rows, C] the same tensor holds `numbers` numbers in the type of sums, such as a maximum and a sum for
// each row of a micro-batch. So they travel in the message of the activation, as do those of its gradient.
#pragma once

#include "core/tensor.h"

namespace trifold {

// The shape of an activation of `rows` rows with `numbers` numbers; without numbers, [rows, width].
Shape shape_with_numbers(int64_t rows, int64_t width, DType dtype, int64_t numbers);

// The two parts of such a tensor, of which `rows` rows are the activation and which has `count` numbers.
struct WithNumbers {
  WithNumbers(Tensor tensor, int64_t rows, int64_t count);

  Tensor all;
  Tensor activation;  // [rows, C]
  Tensor numbers;     // [numbers], accumulate_type of the activation's dtype
};

}  // namespace trifold
