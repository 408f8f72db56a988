#include "run/host.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "core/clock.h"
#include "core/host_name.h"
#include "core/random.h"

namespace trifold {

int ranks_on_host(Communicator& world) {
  auto mine = static_cast<int64_t>(std::hash<std::string>{}(host_name()));
  std::vector<int64_t> all(static_cast<size_t>(world.size()));
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  world.all_gather({all.data(), DType::I64, {world.size()}}, {&mine, DType::I64, {1}}, stream);
  return static_cast<int>(std::count(all.begin(), all.end(), mine));
}

int fair_threads(Communicator& world) { return std::max(1, available_cores() / ranks_on_host(world)); }

int most_on_ranks(Communicator& world, int number) {
  int64_t most = number;
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  world.all_reduce({&most, DType::I64, {1}}, Reduce::Max, stream);
  return static_cast<int>(most);
}

int spare_cores(Communicator& world, int threads) {
  return std::max(0, available_cores() - ranks_on_host(world) * threads);
}

double measure_gemm(const OpTable& ops, Stream& stream, DType dtype, int64_t m, int64_t n, int64_t k,
                    double seconds) {
  // Random numbers, repeated in a large matrix, because drawing takes longer than measuring.
  const auto make = [&](int64_t rows, int64_t cols, const char* name) {
    Buffer buffer(static_cast<size_t>(rows * cols) * size_of(dtype));
    const PhiloxKey key = philox_key(1, name);
    const Tensor t = buffer.tensor(dtype, {rows, cols});
    dispatch_float(dtype, [&](auto zero) {
      using T = decltype(zero);
      T* out = t.as<T>();
      const int64_t drawn = std::min(t.elements(), int64_t{1} << 20);
      for (int64_t i = 0; i < drawn; ++i)
        out[i] = static_cast<T>(philox_word(key, static_cast<uint64_t>(i)) / 4294967296.0 - 0.5);
      for (int64_t i = drawn; i < t.elements(); i += drawn)
        std::copy_n(out, std::min(drawn, t.elements() - i), out + i);
    });
    if (ops.device == nullptr) return buffer;
    Buffer there(buffer.bytes(), ops.device);
    ops.copy(stream, there.tensor(dtype, {rows, cols}), t);
    stream.synchronize();
    return there;
  };
  const Buffer a = make(m, k, "a");
  const Buffer b = make(k, n, "b");
  const Buffer c(static_cast<size_t>(m * n) * size_of(dtype), ops.device);
  // Enqueued back to back, as in training: a device would idle if the host waited for each one. In f64 a product may
  // take a second.
  const int64_t together = ops.device == nullptr || dtype == DType::F64 ? 1 : 8;
  const auto some = [&] {
    for (int64_t i = 0; i < together; ++i)
      ops.gemm(stream, c.tensor(dtype, {m, n}), a.tensor(dtype, {m, k}), false, b.tensor(dtype, {k, n}),
               false, 1.0, 0.0);
    stream.synchronize();
  };
  some();  // wakes the cores and fills the caches
  const auto start = Clock::now();
  double elapsed = 0;
  int64_t count = 0;
  for (; elapsed < seconds; count += together) {
    some();
    elapsed = seconds_since(start);
  }
  return 2.0 * static_cast<double>(m * n * k * count) / elapsed;
}

double measure_peak(Communicator& world, const OpTable& ops, Stream& stream, DType dtype) {
  world.barrier();
  const int64_t size = ops.device != nullptr ? 8192 : 768;  // large enough to fill the device
  double rate = measure_gemm(ops, stream, dtype, size, size, size, dtype == DType::F64 ? 0.1 : 0.25);
  Stream host = stream.host();
  world.all_reduce({&rate, DType::F64, {1}}, Reduce::Sum, host);
  return rate;
}

}  // namespace trifold
