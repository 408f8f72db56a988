// Launchers of softmax over rows.
#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

namespace {

// Kernel chooses a member of StorageKernels: one over rows of x, or one over rows of dy and y.
template <auto Kernel>
void forward(const KernelTable& table, Stream& stream, Tensor y, Tensor x) {
  const int64_t columns = x.last_dim();
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_rows(stream, x.row_count(), columns, kMathGrain,
              [=, out = y.as<T>(), in = x.as<T>(), kernels = &storage_kernels<T>(table)](int64_t begin,
                                                                                         int64_t end) {
                Kernel (*kernels)(out + begin * columns, in + begin * columns, end - begin, columns);
              });
  });
}

template <auto Kernel>
void backward(const KernelTable& table, Stream& stream, Tensor dx, Tensor dy, Tensor y) {
  const int64_t columns = y.last_dim();
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_rows(stream, y.row_count(), columns, kMathGrain,
              [=, out = dx.as<T>(), grad = dy.as<T>(), saved = y.as<T>(),
               kernels = &storage_kernels<T>(table)](int64_t begin, int64_t end) {
                const int64_t at = begin * columns;
                Kernel (*kernels)(out + at, grad + at, saved + at, end - begin, columns);
              });
  });
}

}  // namespace

void add_softmax(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::softmax, forward<[](const auto& kernels) { return kernels.softmax; }>>(ops, table);
  bind<&OpTable::log_softmax, forward<[](const auto& kernels) { return kernels.log_softmax; }>>(ops, table);
  bind<&OpTable::softmax_backward, backward<[](const auto& kernels) { return kernels.softmax_backward; }>>(
      ops, table);
  bind<&OpTable::log_softmax_backward,
       backward<[](const auto& kernels) { return kernels.log_softmax_backward; }>>(ops, table);
}

}  // namespace trifold::cpu
