// Launchers of sums to a scalar.
#include <array>
#include <bit>
#include <mutex>

#include "core/exact_digits.h"
#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

namespace {

constexpr int64_t kSumParts = 256;      // maximum, so that their sums fit on the stack
constexpr int64_t kSumPartUnit = 4096;  // elements

// total += the sums of consecutive parts, added in order. The parts depend on the count only.
template <class PartSum>
void sum_in_parts(ThreadPool& pool, double* total, int64_t count, PartSum part_sum) {
  const int64_t part = ((count + kSumParts - 1) / kSumParts + kSumPartUnit - 1) / kSumPartUnit * kSumPartUnit;
  if (count == 0) return;
  const int64_t parts = (count + part - 1) / part;
  std::array<double, kSumParts> sums;
  pool.parallel_for(parts, std::max<int64_t>(1, kCheapGrain / part), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p)
      sums[static_cast<size_t>(p)] = part_sum(p * part, std::min(count, (p + 1) * part));
  });
  double sum = 0;
  for (int64_t p = 0; p < parts; ++p) sum += sums[static_cast<size_t>(p)];
  *total += sum;
}

}  // namespace

void sum_squares(const KernelTable& table, Stream& stream, Tensor total, Tensor x) {
  dispatch_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* in = x.as<T>();
    stream.run([pool = &stream.pool(), out = total.as<double>(), in, count = x.elements(),
                kernel = storage_kernels<T>(table).sum_squares] {
      sum_in_parts(*pool, out, count,
                   [=](int64_t begin, int64_t end) { return kernel(in + begin, end - begin); });
    });
  });
}

void weighted_sum(const KernelTable& table, Stream& stream, Tensor total, Tensor x, Tensor weight) {
  dispatch_wide_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const T* in = x.as<T>();
    const float* w = weight.as<float>();
    stream.run([pool = &stream.pool(), out = total.as<double>(), in, w, count = x.elements(),
                kernel = kernels<T>(table).weighted_sum] {
      sum_in_parts(*pool, out, count,
                   [=](int64_t begin, int64_t end) { return kernel(in + begin, w + begin, end - begin); });
    });
  });
}

void exact_sum(const KernelTable& /*table*/, Stream& stream, Tensor limbs, Tensor x) {
  stream.run([pool = &stream.pool(), out = limbs.as<int64_t>(), in = x.as<double>(), count = x.elements()] {
    std::mutex mutex;
    pool->parallel_for(count, kSumPartUnit, [&](int64_t begin, int64_t end) {
      std::array<int64_t, kExactLimbs> sums{};
      for (int64_t i = begin; i < end; ++i) {
        const ExactDigits digits = exact_digits(std::bit_cast<uint64_t>(in[i]));
        for (int k = 0; k < digits.count; ++k) sums[static_cast<size_t>(digits.first + k)] += digits.at[k];
      }
      const std::lock_guard lock(mutex);
      for (size_t i = 0; i < sums.size(); ++i) out[i] += sums[i];
    });
  });
}

void add_sums(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::sum_squares, sum_squares>(ops, table);
  bind<&OpTable::weighted_sum, weighted_sum>(ops, table);
  bind<&OpTable::exact_sum, exact_sum>(ops, table);
}

}  // namespace trifold::cpu
