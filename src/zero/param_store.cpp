#include "zero/param_store.h"

#include "zero/flat_layout.h"

namespace trifold {

ParamStore::ParamStore(const ParamList& params, DType dtype) : params_(params) {
  const FlatLayout layout(params);
  buffer_ = Buffer(static_cast<size_t>(layout.elements()) * size_of(dtype));
  views_ = layout.views(buffer_.tensor(dtype, {layout.elements()}));
}

void ParamStore::initialise(uint64_t seed) {
  for (int i = 0; i < params_.size(); ++i) {
    if (!params_.stored({i})) continue;
    const ParamId first = params_[{i}].tied_to.value_or(ParamId{i});  // a copy starts like its original
    trifold::initialise(params_[first], weight({i}), seed);
  }
}

}  // namespace trifold
