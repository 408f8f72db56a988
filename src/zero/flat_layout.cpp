#include "zero/flat_layout.h"

namespace trifold {

namespace {

constexpr int64_t kAlign = 32;  // elements: every view starts on a cache line in any dtype

}  // namespace

FlatLayout::FlatLayout(const ParamList& params) : params_(params) {
  for (int i = 0; i < params.size(); ++i) {
    const ParamSpec& spec = params[{i}];
    const bool stored = params.stored({i});
    const bool shared = spec.tied_to && !stored && params.held({i});
    offsets_.push_back(shared ? offsets_[static_cast<size_t>(spec.tied_to->index)] : elements_);
    if (stored) elements_ += (spec.shard.local.elements() + kAlign - 1) / kAlign * kAlign;
  }
}

std::vector<Tensor> FlatLayout::views(Tensor flat) const {
  std::vector<Tensor> views;
  for (int i = 0; i < params_.size(); ++i) {
    if (!params_.held({i})) {
      views.emplace_back();
      continue;
    }
    const Shape& shape = params_[{i}].shard.local.extent;
    const int64_t begin = offsets_[static_cast<size_t>(i)];
    views.push_back(flat.rows(begin, begin + shape.elements()).reshape(shape));
  }
  return views;
}

}  // namespace trifold
