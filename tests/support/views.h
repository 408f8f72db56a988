// Random boxes and strided views (ops/strided.h), and the plain loop over a box, for tests.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <numeric>
#include <utility>

#include "core/random.h"
#include "ops/strided.h"

namespace trifold::test {

// Draws numbers for random boxes and views.
class Draw {
 public:
  explicit Draw(uint64_t seed) : key_(philox_key(seed, "strided test")) {}
  int64_t below(int64_t limit) {
    return static_cast<int64_t>(philox_word(key_, next_++) % static_cast<uint64_t>(limit));
  }

  Box box(int64_t most_extent) {
    Box box;
    box.rank = static_cast<int>(below(kMostAxes + 1));
    for (size_t axis = 0; axis < size_t(box.rank); ++axis) box.extents[axis] = 1 + below(most_extent);
    return box;
  }

 private:
  PhiloxKey key_;
  uint64_t next_ = 0;
};

// A view, and the number of elements of the smallest tensor that it fits.
struct FittedView {
  StridedView view;
  int64_t elements = 1;
};

// A view that has every element at most once, except along axes whose stride is 0: axes in a random order, gaps
// between some of them, some backwards. Each axis has stride 0 with a chance of 1 in `shared`; 0: none has.
inline FittedView random_view(Draw& draw, const Box& box, int64_t shared) {
  std::array<size_t, kMostAxes> order{};
  std::iota(order.begin(), order.end(), size_t{0});
  for (size_t i = size_t(box.rank); i > 1; --i)
    std::swap(order[i - 1], order[size_t(draw.below(int64_t(i)))]);
  FittedView fitted;
  fitted.view.begin = draw.below(3);
  int64_t stride = 1 + (draw.below(4) == 0 ? 1 : 0);
  int64_t reach = 0;
  for (size_t i = 0; i < size_t(box.rank); ++i) {
    const size_t axis = order[i];
    if (shared > 0 && draw.below(shared) == 0) continue;
    const bool backwards = draw.below(3) == 0;
    fitted.view.strides[axis] = backwards ? -stride : stride;
    if (backwards) fitted.view.begin += stride * (box.extents[axis] - 1);
    reach += stride * (box.extents[axis] - 1);
    stride = stride * box.extents[axis] + (draw.below(4) == 0 ? 2 : 0);
  }
  fitted.elements = fitted.view.begin + reach + 1 + draw.below(2);
  return fitted;
}

// Calls body(i) with every index of the box.
inline void over_box(const Box& box, const std::function<void(const AxisNumbers& index)>& body) {
  const int64_t count = box.elements();
  for (int64_t n = 0; n < count; ++n) {
    AxisNumbers index{};
    int64_t rest = n;
    for (size_t axis = size_t(box.rank); axis-- > 0;) {
      index[axis] = rest % box.extents[axis];
      rest /= box.extents[axis];
    }
    body(index);
  }
}

inline size_t place(const StridedView& view, const AxisNumbers& index) {
  int64_t at = view.begin;
  for (size_t axis = 0; axis < index.size(); ++axis) at += index[axis] * view.strides[axis];
  return static_cast<size_t>(at);
}

}  // namespace trifold::test
