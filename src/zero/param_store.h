// ParamStore: the weights of a rank in one flat buffer; layers see views. Every weight is resident (ZeRO
// stage 0).
#pragma once

#include <vector>

#include "nn/param.h"

namespace trifold {

class ParamStore final : public ParamSource {
 public:
  // `params` must outlive the store. Weights start at zero.
  ParamStore(const ParamList& params, DType dtype);

  Tensor weight(ParamId id) const override { return views_[static_cast<size_t>(id.index)]; }
  // Sets every weight to its initial value; keyed by global position, so every mesh starts from the same
  // model.
  void initialise(uint64_t seed);
  size_t bytes() const { return buffer_.bytes(); }

 private:
  const ParamList& params_;
  Buffer buffer_;
  std::vector<Tensor> views_;
};

}  // namespace trifold
