// Entries of the CUDA table: operations on strided views, and softmax.
#include "ops/cuda/entries.h"
#include "ops/cuda/entries_support.h"
#include "ops/walk.h"

namespace trifold::cuda {

namespace {

using cpu::kAllAxes;
using cpu::WalkOrder;

template <class Y, class X>
void copy_as(Stream& stream, Tensor y, const StridedView& to, Tensor x, const StridedView& from,
             const Box& box) {
  enqueue(stream, "strided_copy",
          [=, out = static_cast<Y*>(y.data) + to.begin,
           in = static_cast<const X*>(x.data) + from.begin](CudaStream on) {
            const cpu::StridedWalk<2> walk = cpu::walk_of(box, kAllAxes, WalkOrder::Free, to, from);
            strided_copy<Y, X>(on, out, in, walk, cpu::elements_of(walk));
          });
}

}  // namespace

void strided_copy(Stream& stream, Tensor y, const StridedView& to, Tensor x, const StridedView& from,
                  const Box& box) {
  if (y.dtype == x.dtype) {
    const size_t size = size_of(y.dtype);
    if (size == 2) return copy_as<uint16_t, uint16_t>(stream, y, to, x, from, box);
    if (size == 4) return copy_as<uint32_t, uint32_t>(stream, y, to, x, from, box);
    return copy_as<uint64_t, uint64_t>(stream, y, to, x, from, box);
  }
  dispatch_float(y.dtype, [&](auto of_y) {
    dispatch_float(x.dtype, [&](auto of_x) {
      using Y = decltype(of_y);
      using X = decltype(of_x);
      constexpr bool kConverts =
          !std::is_same_v<Y, X> && (std::is_same_v<Y, Accumulate<Y>> || std::is_same_v<X, Accumulate<X>>);
      if constexpr (kConverts) copy_as<Y, X>(stream, y, to, x, from, box);
    });
  });
}

void strided_sum(Stream& stream, Tensor y, const StridedView& to, Tensor x, const StridedView& from,
                 const Box& box, double factor, bool accumulate) {
  const auto sums_of = [=] {
    const cpu::SumWalks walks = cpu::sum_walks(box, to, from);
    return StridedSums{walks.kept, walks.summed, cpu::elements_of(walks.kept), cpu::elements_of(walks.summed),
                       factor,     accumulate};
  };
  dispatch_float(x.dtype, [&](auto of_x) {
    using T = decltype(of_x);
    const auto sum = [&](auto of_y) {
      using Y = decltype(of_y);
      enqueue_with_scratch(
          stream, "strided_sum", strided_sum_scratch(sums_of()),
          [sums_of, out = y.as<Y>() + to.begin, in = x.as<T>() + from.begin](CudaStream on, void* scratch) {
            strided_sum<Y, T>(on, scratch, out, in, sums_of());
          });
    };
    if (y.dtype == x.dtype) return sum(T{});
    if (y.dtype == DType::F64) return sum(double{});
    sum(Accumulate<T>{});
  });
}

void map(Stream& stream, Tensor y, std::span<const Tensor> x, const Map& map) {
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    std::array<const T*, 3> in{};
    for (size_t i = 0; i < x.size(); ++i) in[i] = x[i].template as<T>() + map.from[i].begin;
    enqueue(stream, "map", [=, out = y.as<T>(), n = y.elements()](CudaStream on) {
      MapViews<T> views{{in[0], in[1], in[2]}, {}, inputs_of(map.op)};
      for (size_t i = 0; i < static_cast<size_t>(views.inputs); ++i)
        views.walks[i] = cpu::walk_of(map.box, kAllAxes, WalkOrder::Box, map.from[i]);
      map_views<T>(on, out, views, n, map.op, map.a, map.b);
    });
  });
}

namespace {

template <bool Logarithm>
void softmax_as(Stream& stream, Tensor y, Tensor x) {
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, Logarithm ? "log_softmax" : "softmax",
            [out = y.as<T>(), in = x.as<T>(), rows = x.row_count(), columns = x.last_dim()](CudaStream on) {
              softmax<T>(on, out, in, rows, columns, Logarithm);
            });
  });
}

template <bool Logarithm>
void softmax_backward_as(Stream& stream, Tensor dx, Tensor dy, Tensor y) {
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, Logarithm ? "log_softmax_backward" : "softmax_backward",
            [out = dx.as<T>(), grad = dy.as<T>(), saved = y.as<T>(), rows = y.row_count(),
             columns = y.last_dim()](CudaStream on) {
              softmax_backward<T>(on, out, grad, saved, rows, columns, Logarithm);
            });
  });
}

}  // namespace

void add_strided(OpTable& ops) {
  ops.strided_copy = strided_copy;
  ops.strided_sum = strided_sum;
  ops.map = map;
  ops.softmax = softmax_as<false>;
  ops.softmax_backward = softmax_backward_as<false>;
  ops.log_softmax = softmax_as<true>;
  ops.log_softmax_backward = softmax_backward_as<true>;
}

}  // namespace trifold::cuda
