#include "cuda/expert_probe.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_queue.h"
#include "core/error.h"
#include "core/random.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/table.h"

namespace trifold::probe {
namespace {

using cuda::ProductUnit;

// Small whole numbers, whose sums of products are exact in f32 in any order.
class Experts {
 public:
  Experts(std::vector<int32_t> rows, int64_t n, int64_t k)
      : rows_(std::move(rows)),
        n_(n),
        k_(k),
        ops_(cuda::make_table(&device_)),
        stream_(Stream::Mode::Inline, pool_, &device_) {
    std::vector<int32_t> first{0};
    for (const int32_t here : rows_) first.push_back(first.back() + here);
    all_ = first.back();
    first_ = memory(DType::I32, {experts() + 1});
    to_device(first_, first.data());
    x_ = whole({all_, k_}, 1);
    dy_ = whole({all_, n_}, 2);
    w_ = whole({experts(), n_, k_}, 3);
    y_ = memory(DType::BF16, {all_, n_});
    dx_ = memory(DType::BF16, {all_, k_});
    dw_ = memory(DType::F32, {experts(), n_, k_});
  }

  void product(ProductUnit unit) {
    check(cuda::grouped_product<Bfloat16>(native(), unit, y_.as<Bfloat16>(), x_.as<Bfloat16>(),
                                          w_.as<Bfloat16>(), first_.as<int32_t>(), all_, experts(), n_, k_,
                                          true),
          "the product is not one for tensor cores");
  }
  void product_dx(ProductUnit unit) {
    check(cuda::grouped_product<Bfloat16>(native(), unit, dx_.as<Bfloat16>(), dy_.as<Bfloat16>(),
                                          w_.as<Bfloat16>(), first_.as<int32_t>(), all_, experts(), k_, n_,
                                          false),
          "the product is not one for tensor cores");
  }
  void product_dw(ProductUnit unit, bool accumulate) {
    check(cuda::grouped_product_weight<Bfloat16>(native(), unit, dw_.as<float>(), dy_.as<Bfloat16>(),
                                                 x_.as<Bfloat16>(), first_.as<int32_t>(), all_, experts(), n_,
                                                 k_, accumulate),
          "the product is not one for tensor cores");
  }

  // The three by the library, an expert at a time.
  void by_library(bool accumulate) {
    int64_t begin = 0;
    for (int64_t e = 0; e < experts(); ++e) {
      const int64_t end = begin + rows_[static_cast<size_t>(e)];
      const Tensor w = w_.flat(e * n_ * k_, (e + 1) * n_ * k_).reshape({n_, k_});
      const Tensor dw = dw_.flat(e * n_ * k_, (e + 1) * n_ * k_).reshape({n_, k_});
      if (end > begin) {
        const Tensor x = x_.rows(begin, end), dy = dy_.rows(begin, end);
        ops_.gemm(stream_, y_.rows(begin, end), x, false, w, true, 1, 0);
        ops_.gemm(stream_, dx_.rows(begin, end), dy, false, w, false, 1, 0);
        ops_.gemm(stream_, dw, dy, true, x, false, 1, accumulate ? 1 : 0);
      } else if (!accumulate) {
        ops_.fill(stream_, dw, 0);
      }
      begin = end;
    }
  }

  // Whether the unit computes products as itself: the driver makes the tensor maps of warpgroups.
  bool has_maps(ProductUnit unit, const char* name) {
    if (unit != ProductUnit::Warpgroup) return true;
    for (const int error : {cuda::tensor_map_error(x_.as<Bfloat16>(), k_, all_, 1),
                            cuda::tensor_map_error(dy_.as<Bfloat16>(), n_, all_, 1),
                            cuda::tensor_map_error(w_.as<Bfloat16>(), k_, n_, experts()),
                            cuda::tensor_map_error(dw_.as<float>(), k_, n_, experts())})
      if (error != 0) {
        std::printf(
            "%-10s WRONG: the driver makes no tensor map (CUresult %d; -1: it has no such function)\n", name,
            error);
        return false;
      }
    return true;
  }

  // Compares y, dx and dw, to which gradients are added or not, with what the library computes. All begin with ones.
  int compare(ProductUnit unit, const char* name) {
    if (!has_maps(unit, name)) return 1;
    return compare(unit, name, true) | compare(unit, name, false);
  }
  int compare(ProductUnit unit, const char* name, bool accumulate) {
    std::printf("%-10s n %5ld k %5ld, gradients %s:\n", name, static_cast<long>(n_), static_cast<long>(k_),
                accumulate ? "added" : "written");
    std::fflush(stdout);  // a fault of the card ends the program
    const std::vector<Tensor> results{y_, dx_, dw_};
    std::vector<std::vector<std::byte>> expected;
    for (const bool library : {true, false}) {
      for (const Tensor& each : results) ops_.fill(stream_, each, 1);
      if (library) {
        by_library(accumulate);
      } else {
        product(unit);
        product_dx(unit);
        product_dw(unit, accumulate);
      }
      if (library)
        for (const Tensor& each : results) expected.push_back(to_host(each));
    }
    int wrong = 0;
    constexpr const char* kNames[] = {"y", "dx", "dw"};
    for (size_t i = 0; i < results.size(); ++i) {
      const auto got = to_host(results[i]);
      const size_t size = size_of(results[i].dtype), row = static_cast<size_t>(results[i].last_dim());
      size_t differ = 0, where = 0;
      for (size_t at = got.size() / size; at-- > 0;)
        if (std::memcmp(&got[at * size], &expected[i][at * size], size) != 0) {
          ++differ;
          where = at;
        }
      if (differ == 0)
        std::printf("%-10s %-2s right\n", name, kNames[i]);
      else
        std::printf("%-10s %-2s WRONG: %zu of %zu numbers, first (%zu, %zu)\n", name, kNames[i], differ,
                    got.size() / size, where / row, where % row);
      wrong |= differ == 0 ? 0 : 1;
    }
    return wrong;
  }

  // Prints what additions of zero do to subnormal gradients.
  void show_subnormal(ProductUnit unit, const char* name) {
    constexpr float kTiny = 1e-40F;
    ops_.fill(stream_, dw_, kTiny);
    product_dw(unit, true);
    const auto bytes = to_host(dw_);
    size_t kept = 0, cleared = 0;
    for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
      float number = 0;
      std::memcpy(&number, &bytes[at], sizeof number);
      kept += number == kTiny ? 1 : 0;
      cleared += number == 0 ? 1 : 0;
    }
    std::printf("%-10s subnormal gradients: %zu kept, %zu became zero\n", name, kept, cleared);
  }

  void time(ProductUnit unit, const char* name) {
    const double flops =
        2 * static_cast<double>(all_) * static_cast<double>(n_) * static_cast<double>(k_) * 1e-12;
    const double y = seconds([&] { product(unit); }), dx = seconds([&] { product_dx(unit); }),
                 dw = seconds([&] { product_dw(unit, true); });
    std::printf("%-10s n %5ld k %5ld: y %4.0f, dx %4.0f, dw %4.0f TFLOP/s\n", name, static_cast<long>(n_),
                static_cast<long>(k_), flops / y, flops / dx, flops / dw);
    std::fflush(stdout);
  }

 private:
  int64_t experts() const { return static_cast<int64_t>(rows_.size()); }
  cuda::CudaStream native() {
    return static_cast<cuda::CudaStream>(static_cast<cuda::CudaQueue&>(*stream_.queue()).native());
  }
  Tensor memory(DType dtype, const Shape& shape) {
    buffers_.push_back(Buffer(static_cast<size_t>(shape.elements()) * size_of(dtype), &device_));
    return buffers_.back().tensor(dtype, shape);
  }
  void to_device(const Tensor& to, const void* from) {
    const Buffer host(to.bytes());
    std::memcpy(host.data(), from, to.bytes());
    ops_.copy(stream_, to, host.tensor(to.dtype, to.shape));
    stream_.synchronize();
  }
  std::vector<std::byte> to_host(const Tensor& from) {
    const Buffer host(from.bytes());
    ops_.copy(stream_, host.tensor(from.dtype, from.shape), from);
    stream_.synchronize();
    return {host.data(), host.data() + from.bytes()};
  }
  Tensor whole(const Shape& shape, uint32_t seed) {
    const Tensor tensor = memory(DType::BF16, shape);
    const auto count = static_cast<size_t>(shape.elements());
    std::vector<Bfloat16> numbers(count);
    const size_t drawn = std::min<size_t>(count, size_t{1} << 20);
    for (size_t i = 0; i < drawn; ++i)
      numbers[i] = Bfloat16(static_cast<double>(philox_word({seed, 1}, i) % 5) - 2);
    for (size_t i = drawn; i < count; i += drawn)
      std::copy_n(numbers.begin(), std::min(drawn, count - i),
                  numbers.begin() + static_cast<std::ptrdiff_t>(i));
    to_device(tensor, numbers.data());
    return tensor;
  }
  template <class Work>
  double seconds(const Work& work) {
    using Clock = std::chrono::steady_clock;
    work();
    stream_.synchronize();
    double best = 1e30;
    for (int round = 0; round < 3; ++round) {
      const auto start = Clock::now();
      for (int i = 0; i < 10; ++i) work();
      stream_.synchronize();
      best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count() / 10);
    }
    return best;
  }

  std::vector<int32_t> rows_;
  int64_t n_, k_;
  int64_t all_ = 0;
  cuda::CudaDevice device_{0};
  OpTable ops_;
  ThreadPool pool_{1};
  Stream stream_;
  std::vector<Buffer> buffers_;
  Tensor first_, x_, dy_, w_, y_, dx_, dw_;
};

struct Unit {
  ProductUnit unit;
  const char* name;
};

}  // namespace

int run_expert_probe() {
  check(cuda::device_count() > 0, "there is no CUDA device");
  const auto best = cuda::best_product_unit();
  check(best.has_value(), "the device has no products of experts on tensor cores");
  std::vector<Unit> units;
  for (const Unit& each : {Unit{ProductUnit::WarpInLittleMemory, "warps, 96K"},
                           {ProductUnit::Warp, "warps"},
                           {ProductUnit::Warpgroup, "warpgroups"}})
    if (each.unit <= *best) units.push_back(each);
  int wrong = 0;
  {
    Experts experts({3, 0}, 8, 24);  // smaller than a box in every extent
    for (const auto& [unit, name] : units) wrong |= experts.compare(unit, name);
    for (const auto& [unit, name] : units) experts.show_subnormal(unit, name);
  }
  {
    Experts experts({0, 300, 7, 1000}, 520, 712);
    for (const auto& [unit, name] : units) wrong |= experts.compare(unit, name);
  }
  {
    Experts experts({2048, 2048, 2048, 2048, 2048, 2048, 2048, 2048}, 2560, 1024);
    for (const auto& [unit, name] : units) wrong |= experts.compare(unit, name);
  }
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{5376, 1024}, {1024, 2688}, {4096, 4096}}) {
    Experts experts({2148, 1948, 2248, 1848, 2048, 2048, 2000, 2096}, n, k);
    for (const auto& [unit, name] : units) experts.time(unit, name);
  }
  return wrong;
}

}  // namespace trifold::probe
