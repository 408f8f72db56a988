// One loop for each function of OpTable::map, in the types of computation: the launcher converts 16-bit numbers and
// gathers strided inputs, a block at a time.
#pragma once

#include "ops/kernels.h"
#include "ops/kernels/lane.h"
#include "ops/kernels/map_formulas.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

template <class T, class Line>
void map_block(T* y, const T* x0, const T* x1, const T* x2, int64_t n, T a, T b) {
  Lane::each(n, [=](int64_t i) {
    MapArguments<T> in{x0[i], 0, 0, a, b};
    if constexpr (Line::kInputs >= 2) in.x1 = x1[i];
    if constexpr (Line::kInputs >= 3) in.x2 = x2[i];
    y[i] = Line::Of::of(in);
  });
}

template <class T, class List>
struct MapsOf;
template <class T, class... Lines>
struct MapsOf<T, MapLines<Lines...>> {
  static constexpr MapKernel<T> kKernels[] = {map_block<T, Lines>...};
};

}  // namespace
}  // namespace trifold::cpu
