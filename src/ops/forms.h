// Forms: a matrix [R, C] as its readers ask for it. A product in 8 bits sums over the columns of one factor and over the
// rows of another, and a bias' gradient is a sum over rows; an operation that takes Forms writes all of them that are
// present, in one pass. A form that is absent has no dims. A Tensor converts to Forms with nothing else.
//
//   rows     the matrix: of a floating-point type, or narrow, with a scale for 128 elements of a row
//   turned   the narrow matrix' columns, rounded again with a scale for 128 rows: U8 [1, C, bytes of R elements]
//   sums     the sums over 128 rows each of the elements before they are rounded to 8 bits: f32 [ceil(R / 128), C]
//
// ops/narrow.h describes narrow tensors. Forms own no memory.
#pragma once

#include "core/tensor.h"

namespace trifold {

inline bool is_present(const Tensor& tensor) { return tensor.rank() > 0; }
inline bool is_turned(const Tensor& tensor) { return tensor.dtype == DType::U8 && tensor.rank() == 3; }

struct Forms {
  Forms() = default;
  Forms(const Tensor& tensor)  // NOLINT(google-explicit-constructor): a tensor is one form
      : rows(is_turned(tensor) ? Tensor{} : tensor), turned(is_turned(tensor) ? tensor : Tensor{}) {}

  // Whether nothing but a matrix of a floating-point type is present.
  bool are_wide() const { return rows.dtype != DType::U8 && !is_present(turned) && !is_present(sums); }

  Tensor rows, turned, sums;
};

}  // namespace trifold
