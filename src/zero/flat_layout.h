// FlatLayout: where each parameter that this rank holds lies in a flat buffer of weights or optimizer state.
// Tied uses share the place of the parameter they are tied to, where that is held too.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/param.h"

namespace trifold {

class FlatLayout {
 public:
  // `params` must outlive the layout.
  explicit FlatLayout(const ParamList& params);
  int64_t elements() const { return elements_; }
  // One view a parameter into `flat`, which has elements() elements; an empty tensor for what is not held.
  std::vector<Tensor> views(Tensor flat) const;

 private:
  const ParamList& params_;
  std::vector<int64_t> offsets_;
  int64_t elements_ = 0;
};

}  // namespace trifold
