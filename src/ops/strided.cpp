#include "ops/strided.h"

#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/tensor.h"
#include "ops/kernels/map_formulas.h"

namespace trifold {

namespace {

template <MapOp Op>
constexpr std::string_view text_of_op() {
  std::string_view text = __PRETTY_FUNCTION__;  // "... [with MapOp Op = trifold::MapOp::Neg; ...]"
  text.remove_prefix(text.rfind("MapOp::") + std::string_view("MapOp::").size());
  return text.substr(0, text.find_first_of(";]"));
}

// The enumerator's name, ended by a zero.
template <MapOp Op>
struct OpName {
  static constexpr std::array<char, text_of_op<Op>().size() + 1> kText = [] {
    std::array<char, text_of_op<Op>().size() + 1> text{};
    for (size_t i = 0; i + 1 < text.size(); ++i) text[i] = text_of_op<Op>()[i];
    return text;
  }();
};

struct MapFacts {
  const char* name;
  int inputs;
};

template <class List>
struct FactsOf;
template <class... Lines>
struct FactsOf<cpu::MapLines<Lines...>> {
  static constexpr MapFacts kFacts[] = {{OpName<Lines::kOp>::kText.data(), Lines::kInputs}...};
};

const MapFacts& facts_of(MapOp op) {
  const auto number = static_cast<int>(op);
  check(number < kMapOps, "there is no MapOp {}: they are 0 to {}", number, kMapOps - 1);
  return FactsOf<cpu::MapList>::kFacts[number];
}

}  // namespace

const char* name_of(MapOp op) { return facts_of(op).name; }
int inputs_of(MapOp op) { return facts_of(op).inputs; }

int64_t Box::elements() const {
  check(0 <= rank && rank <= kMostAxes, "a box has rank {}, but ranks from 0 to {} are supported", rank,
        kMostAxes);
  int64_t count = 1;
  bool fits = true;
  for (size_t axis = 0; axis < static_cast<size_t>(rank); ++axis) {
    check(extents[axis] >= 0, "axis {} of a box has extent {}, which must not be negative", axis,
          extents[axis]);
    fits = fits && !__builtin_mul_overflow(count, extents[axis], &count);
  }
  check(fits && count <= Shape::kMaxElements, "a box has more than {} indices", Shape::kMaxElements);
  return count;
}

StridedView contiguous_view(const Box& box) {
  StridedView view;
  int64_t stride = 1;
  for (int axis = box.rank - 1; axis >= 0; --axis) {
    const auto at = static_cast<size_t>(axis);
    view.strides[at] = stride;
    stride *= std::max<int64_t>(box.extents[at], 1);  // an empty axis does not make the strides of others 0
  }
  return view;
}

}  // namespace trifold
