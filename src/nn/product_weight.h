// ProductWeight: the matrix of a product, as layers read it. A frozen one may be quantized in memory
// (AdapterConfig::quantize_base, ops/quantized.h); a product then needs its values, which are computed into scratch each
// time that it is read and released with the caller's scratch. The memory is therefore that of the largest matrix whose
// product is running, and a plan, which walks the layers, knows it.
#pragma once

#include <optional>

#include "nn/layer.h"

namespace trifold {

class ProductWeight {
 public:
  // The dim of the weight [..., outputs, inputs] that the tensor axis cuts. Blocks of a quantized weight lie along the
  // inputs, unless these are cut.
  enum class Cut { Outputs, Inputs, None };

  // For a parameter that was declared before. It is quantized if the builder's adapters say so and it is frozen.
  ProductWeight(BlockBuilder& builder, ParamId id, Cut cut);

  ParamId id() const { return id_; }
  // Of this rank's part, viewed as a matrix.
  int64_t rows() const { return shape_.elements() / columns(); }
  int64_t columns() const { return shape_[shape_.rank() - 1]; }
  // The weight in run.dtype. If it is quantized, it is in run.scratch: call it after marking scratch, and after everything
  // is taken that must outlive the mark.
  Tensor read(Run& run) const;

 private:
  ParamId id_;
  Shape shape_;  // part of this rank
  std::optional<QuantizedForm> quantized_;
};

}  // namespace trifold
