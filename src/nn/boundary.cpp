#include "nn/boundary.h"

#include "nn/row_statistics.h"

namespace trifold {

Shape Boundary::shape(int64_t samples, int64_t positions, DType dtype) const {
  const int64_t all = samples * positions;
  const int64_t held = rows ? samples * rows->per_sample + rows->fixed : all / row_parts;
  return shape_with_statistics(held, width, dtype, all * row_statistics);
}

size_t Boundary::bytes(int64_t samples, int64_t positions, DType dtype) const {
  return static_cast<size_t>(shape(samples, positions, dtype).elements()) * size_of(dtype);
}

}  // namespace trifold
