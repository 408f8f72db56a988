#include "zero/flat_layout.h"

namespace trifold {

namespace {

constexpr int64_t kAlign = 32;  // elements: every view starts on a cache line in any dtype

}  // namespace

FlatLayout::FlatLayout(const ParamList& params) : params_(params) {
  for (const ParamSpec& spec : params.specs()) {
    if (spec.tied_to) {
      offsets_.push_back(offsets_[static_cast<size_t>(spec.tied_to->index)]);
      continue;
    }
    offsets_.push_back(elements_);
    elements_ += (spec.shard.local.elements() + kAlign - 1) / kAlign * kAlign;
  }
}

std::vector<Tensor> FlatLayout::views(Tensor flat) const {
  std::vector<Tensor> views;
  for (int i = 0; i < params_.size(); ++i) {
    const Shape& shape = params_[{i}].shard.local.extent;
    const int64_t begin = offsets_[static_cast<size_t>(i)];
    views.push_back(flat.rows(begin, begin + shape.elements()).reshape(shape));
  }
  return views;
}

}  // namespace trifold
