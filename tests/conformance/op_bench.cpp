// Achieved bytes per second of the memory-bound operations at training sizes, each as a fraction of what the
// table's own copy reaches in the same run. On a GPU every line should be at least 0.8. Then the operations per
// second of the products of experts, each shape after the one product of as many operations ("dense").
//
//   op_bench cuda [DIVISOR]                on the first GPU
//   op_bench cuda products                 only the products
//   op_bench cuda views                    only the operations on strided views, beside those on whole tensors
//   op_bench cpu [DIVISOR]                 on this machine's processor; DIVISOR (default 1) divides the sizes
//   op_bench cuda DIVISOR OPERATION...     only these, once each and not timed, for a profiler
//
// Exit status: 0; 1 if there is no GPU; 2 for invalid arguments.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/cuda_module.h"
#include "core/random.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "ops/ops.h"

namespace {

using namespace trifold;

class Bench {
 public:
  Bench(const OpTable& ops, int64_t divisor, std::vector<std::string> once)
      : ops_(ops),
        divisor_(divisor),
        once_(std::move(once)),
        stream_(Stream::Mode::Inline, pool_, ops.device) {}

  // GPT-2 XL's layers in bf16 and their optimizer, and DLRM's tables.
  void run() {
    if (once_ == std::vector<std::string>{"products"}) {
      once_.clear();
      return experts();
    }
    const bool only_views = once_ == std::vector<std::string>{"views"};
    if (only_views) once_.clear();
    if (once_.empty()) std::printf("%-28s %10s %10s %8s\n", "operation", "us", "GB/s", "of copy");
    if (only_views) {
      views(kF32);
      return views(kBf16);
    }
    movement();
    norms();
    losses();
    tokens();
    choices();
    updates();
    recommender();
    views(kBf16);
    experts();
  }

 private:
  const DType kBf16 = DType::BF16;
  const DType kF32 = DType::F32;

  int64_t sized(int64_t extent) const { return std::max<int64_t>(1, extent / divisor_); }

  // A tensor of small random numbers: what zeros take says little.
  Tensor numbers(DType dtype, const Shape& shape) {
    const Tensor tensor = memory(dtype, shape);
    const int64_t n = tensor.elements();
    const Buffer host(tensor.bytes());
    const Tensor from = host.tensor(dtype, shape);
    dispatch_float(dtype, [&](auto zero) {
      using T = decltype(zero);
      T* out = from.as<T>();
      const int64_t drawn = std::min(n, int64_t{1} << 20);  // drawing billions takes the host a minute
      uint64_t word = 88172645463325252ULL;
      for (int64_t i = 0; i < drawn; ++i) {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        out[i] = static_cast<T>(static_cast<double>(word >> 40) * 0x1p-24);
      }
      for (int64_t i = drawn; i < n; i += drawn) std::copy_n(out, std::min(drawn, n - i), out + i);
    });
    ops_.copy(stream_, tensor, from);
    stream_.synchronize();
    return tensor;
  }
  Tensor ids(int64_t n, int64_t limit) {
    return words(n, [limit](int64_t i) {
      return static_cast<int32_t>(philox_word({1, 2}, static_cast<uint64_t>(i)) %
                                  static_cast<uint64_t>(limit));
    });
  }
  Tensor words(int64_t n, const std::function<int32_t(int64_t)>& value) {
    const Tensor tensor = memory(DType::I32, {n});
    const Buffer host(tensor.bytes());
    for (int64_t i = 0; i < n; ++i) host.tensor(DType::I32, {n}).as<int32_t>()[i] = value(i);
    ops_.copy(stream_, tensor, host.tensor(DType::I32, {n}));
    stream_.synchronize();
    return tensor;
  }
  Tensor memory(DType dtype, const Shape& shape) {
    const auto bytes = static_cast<size_t>(shape.elements()) * size_of(dtype);
    buffers_.push_back(Buffer(bytes, ops_.device));
    return buffers_.back().tensor(dtype, shape);
  }

  void time(const std::string& name, double bytes, const std::function<void()>& work) {
    const double best = seconds(name, work);
    if (best == 0) return;
    if (copy_ == 0) copy_ = bytes / best;
    std::printf("%-28s %10.1f %10.1f %8.2f\n", name.c_str(), best * 1e6, bytes / best * 1e-9,
                bytes / best / copy_);
    std::fflush(stdout);  // so that a run that is stopped has said what it did
  }
  void product(const std::string& name, double flops, const std::function<void()>& work) {
    const double best = seconds(name, work);
    if (best == 0) return;
    std::printf("%-28s %10.1f %10.1f  TFLOP/s\n", name.c_str(), best * 1e6, flops / best * 1e-12);
    std::fflush(stdout);
  }

  // Of a call: the best of some rounds of several, after one that does not count. 0 if nothing is timed.
  double seconds(const std::string& name, const std::function<void()>& work) {
    using Clock = std::chrono::steady_clock;
    const bool chosen = once_.empty() || std::find(once_.begin(), once_.end(), name) != once_.end();
    if (chosen) work();
    stream_.synchronize();
    double best = once_.empty() ? 1e30 : 0;
    for (int round = 0; round < 5 && once_.empty(); ++round) {
      const auto start = Clock::now();
      for (int i = 0; i < kCalls; ++i) work();
      stream_.synchronize();
      best = std::min(best, std::chrono::duration<double>(Clock::now() - start).count() / kCalls);
    }
    buffers_.clear();
    return best;
  }

  void movement() {
    const int64_t n = sized(int64_t{16384} * 6400);
    const auto count = static_cast<double>(n);
    {
      const Tensor x = numbers(kBf16, {n}), y = memory(kBf16, {n});
      time("copy", 4 * count, [=, this] { ops_.copy(stream_, y, x); });
    }
    {
      const Tensor x = numbers(kBf16, {n}), y = memory(kBf16, {n});
      time("add", 6 * count, [=, this] { ops_.add(stream_, y, y, x); });
    }
    {
      const Tensor x = numbers(kBf16, {n}), y = memory(kBf16, {n});
      time("gelu", 4 * count, [=, this] { ops_.gelu(stream_, y, x); });
    }
    {
      const Tensor x = numbers(kBf16, {n}), y = numbers(kBf16, {n});
      time("gelu_backward", 6 * count, [=, this] { ops_.gelu_backward(stream_, y, y, x); });
    }
    {
      const Tensor x = numbers(kBf16, {sized(16384), 6400}), y = memory(kBf16, {sized(16384), 3200});
      time("swiglu", 6 * static_cast<double>(y.elements()), [=, this] { ops_.gated(stream_, y, x, {}); });
    }
    {
      const Tensor x = numbers(kBf16, {n}), y = numbers(kBf16, {n});
      time("dropout_add", 6 * count, [=, this] { ops_.dropout_add(stream_, y, y, x, {0.1, {3, 4}, 0}); });
    }
  }

  void norms() {
    const int64_t rows = sized(32768);
    const int64_t columns = 1600;
    const auto count = static_cast<double>(rows * columns);
    const auto prepare = [&](bool) {
      return std::array<Tensor, 7>{numbers(kBf16, {rows, columns}), numbers(kBf16, {rows, columns}),
                                   memory(kBf16, {rows, columns}),  numbers(kF32, {rows}),
                                   numbers(kF32, {rows}),           numbers(kBf16, {columns}),
                                   numbers(kF32, {columns})};
    };
    {
      const auto [x, dy, out, mean, rstd, gain, sum] = prepare(true);
      time("layer_norm", 4 * count, [=, this, x = x, out = out, mean = mean, rstd = rstd, gain = gain] {
        ops_.layer_norm(stream_, out, mean, rstd, x, gain, gain, 1e-5, 0);
      });
    }
    {
      const auto [x, dy, out, mean, rstd, gain, sum] = prepare(true);
      time("layer_norm_backward", 6 * count,
           [=, this, x = x, dy = dy, out = out, mean = mean, rstd = rstd, gain = gain] {
             ops_.layer_norm_backward(stream_, out, dy, x, mean, rstd, gain, 0);
           });
    }
    {
      const auto [x, dy, out, mean, rstd, gain, sum] = prepare(true);
      time("layer_norm_backward_weight", 4 * count,
           [=, this, x = x, dy = dy, mean = mean, rstd = rstd, sum = sum] {
             ops_.layer_norm_backward_weight(stream_, sum, sum, dy, x, mean, rstd, true);
           });
    }
    {
      const auto [x, dy, out, mean, rstd, gain, sum] = prepare(true);
      const Tensor residual = numbers(kBf16, {rows, columns}), other = numbers(kF32, {columns});
      time("layer_norm_backward_all", 8 * count,
           [=, this, x = x, dy = dy, out = out, mean = mean, rstd = rstd, gain = gain, sum = sum] {
             ops_.layer_norm_backward_all(stream_, out, sum, other, residual, dy, x, mean, rstd, gain, true,
                                          0);
           });
    }
    {
      const auto [x, dy, out, mean, rstd, gain, sum] = prepare(true);
      time("rms_norm", 4 * count, [=, this, x = x, out = out, rstd = rstd, gain = gain] {
        ops_.rms_norm(stream_, out, rstd, x, gain, 1e-5, 0);
      });
    }
    {
      const auto [x, dy, out, mean, rstd, gain, sum] = prepare(true);
      time("column_sum", 2 * count,
           [=, this, dy = dy, sum = sum] { ops_.column_sum(stream_, sum, dy, true); });
    }
  }

  void losses() {
    const int64_t rows = sized(4096);
    const int64_t vocab = 50304;
    const auto count = static_cast<double>(rows * vocab);
    const Tensor logits = numbers(kBf16, {rows, vocab});
    const Tensor label = ids(rows, vocab);
    const Tensor max = numbers(kF32, {rows}), sum = numbers(kF32, {rows}), target = numbers(kF32, {rows});
    const auto kept = std::move(buffers_);
    time("softmax_stats", 2 * count,
         [=, this] { ops_.softmax_stats(stream_, max, sum, target, logits, label, 0, vocab - 47); });
    time("cross_entropy_backward", 4 * count, [=, this] {
      ops_.cross_entropy_backward(stream_, logits, logits, max, sum, label, target, 1, 0, vocab - 47);
    });
    time("cross_entropy_all", 4 * count, [=, this] {
      ops_.cross_entropy_all(stream_, logits, max, sum, target, logits, label, target, 1, 0, vocab - 47);
    });
  }

  void tokens() {
    const int64_t rows = sized(32768);
    const int64_t columns = 1600;
    const int64_t vocab = 50304;
    const auto count = static_cast<double>(rows * columns);
    {
      const Tensor y = memory(kBf16, {rows, columns}), table = numbers(kBf16, {vocab, columns});
      const Tensor id = ids(rows, vocab);
      time("embedding", 4 * count, [=, this] { ops_.embedding(stream_, y, table, id, 0, false); });
    }
    {
      const Tensor dy = numbers(kBf16, {rows, columns}), table = memory(kF32, {vocab, columns});
      const Tensor id = ids(rows, vocab), order = ids(rows, 2);
      // Half of the rows are another token's; each is read and written in f32 once.
      time("embedding_backward", 2 * count + 8 * 0.73 * count,
           [=, this] { ops_.embedding_backward(stream_, table, dy, id, order, 0); });
    }
    {
      const Tensor x = numbers(kBf16, {rows, 3 * columns}), positions = ids(rows, 1024);
      const std::vector<double> frequencies(32, 0.1);
      time("rotary", 4 * count, [=, this] {
        ops_.rotary(stream_, x, x, positions, {frequencies, 64, 25, 1600, 0, 0, false});
      });
    }
  }

  // Rows of the experts of tests/gpu.sh's mixture, in another order than their choices.
  void choices() {
    const int64_t rows = sized(16384);
    constexpr int64_t kColumns = 2688;
    const auto count = static_cast<double>(rows * kColumns);
    const Tensor x = numbers(kBf16, {rows, 2 * kColumns}), dx = memory(kBf16, x.shape);
    const Tensor y = memory(kBf16, {rows, kColumns}), dy = numbers(kBf16, y.shape);
    const Tensor gates = numbers(kF32, {rows}), dgates = memory(kF32, {rows});
    const Tensor row = words(rows, [rows](int64_t i) { return static_cast<int32_t>(rows - 1 - i); });
    const auto kept = std::move(buffers_);
    const ActivationForm form(ActivationKind::Swiglu);
    time("activate_choices", 6 * count,
         [=, this] { ops_.activate_choices(stream_, y, x, gates, row, form); });
    time("activate_choices_backward", 12 * count,
         [=, this] { ops_.activate_choices_backward(stream_, dx, y, dgates, dy, x, gates, row, form); });
  }

  void updates() {
    const int64_t n = sized(int64_t{64} << 20);
    const auto count = static_cast<double>(n);
    const Tensor p = numbers(kF32, {n}), m = numbers(kF32, {n}), v = numbers(kF32, {n}),
                 g = numbers(kF32, {n});
    const Tensor copy = memory(kBf16, {n}), partials = numbers(DType::F64, {n / kNormChunk + 1});
    const auto kept = std::move(buffers_);
    time("adamw", 30 * count, [=, this] { ops_.adamw(stream_, p, copy, m, v, g, {.lr = 1e-3, .step = 2}); });
    const Tensor chunks = partials.flat(0, (n + kNormChunk - 1) / kNormChunk);
    time("chunk_squares", 4 * count, [=, this] { ops_.chunk_squares(stream_, chunks, g); });
  }

  void recommender() {
    const int64_t rows = sized(4000000), bags = sized(65536);
    const int64_t hot = 8;
    const int64_t width = 128;
    const Tensor table = numbers(kF32, {rows, width}), y = numbers(kF32, {bags, width});
    const Tensor id = ids(bags * hot, rows);
    const Tensor offsets = words(bags + 1, [](int64_t i) { return static_cast<int32_t>(i * hot); });
    const auto kept = std::move(buffers_);
    const std::vector<BagLookup> lookups{{table, id, offsets, {}, 0}};
    const auto read = static_cast<double>(bags * hot * width * 4);
    time("embedding_bags", read + static_cast<double>(bags * width * 4),
         [&, this] { ops_.embedding_bags(stream_, y, lookups); });
    const int64_t samples = sized(16384);
    const Tensor x = numbers(kF32, {samples, 27 * width}), z = numbers(kF32, {samples, width + 351});
    const auto in = static_cast<double>(x.bytes());
    const auto also = std::move(buffers_);
    time("dot_interaction", in + static_cast<double>(z.bytes()),
         [=, this] { ops_.dot_interaction(stream_, z, x, width, false); });
    const Tensor dx = memory(kF32, {samples, 27 * width});
    time("dot_interaction_backward", 2 * in + static_cast<double>(z.bytes()),
         [=, this] { ops_.dot_interaction_backward(stream_, dx, z, x, width, false); });
  }

  // y = x w^T, dx = dy w and dw += dy^T x of eight experts with w [n, k], over uneven rows.
  void experts() {
    constexpr int64_t kExperts = 8;
    constexpr int64_t kShapes[][2] = {{5376, 1024}, {1024, 2688}, {4096, 4096}, {8192, 8192}};
    const int64_t rows = std::max(2 * kExperts, sized(16384));
    for (const auto& [full_n, full_k] : kShapes) {
      const int64_t n = std::max<int64_t>(8, sized(full_n)), k = std::max<int64_t>(8, sized(full_k));
      const Tensor first = words(kExperts + 1, [&](int64_t i) {
        return static_cast<int32_t>(i * rows / kExperts + i % 2 * rows / kExperts / 16);
      });
      const Tensor x = numbers(kBf16, {rows, k}), y = numbers(kBf16, {rows, n});
      const Tensor w = numbers(kBf16, {kExperts, n, k}), dw = memory(kF32, w.shape);
      const Tensor dx = memory(kBf16, x.shape);
      const Tensor dense{w.data, kBf16, {n, k}};
      ops_.fill(stream_, dw, 0);
      const auto kept = std::move(buffers_);
      const double flops = 2.0 * static_cast<double>(rows) * static_cast<double>(n) * static_cast<double>(k);
      const std::string shape = "_" + std::to_string(full_n) + "x" + std::to_string(full_k);
      product("dense" + shape, flops, [&, this] { ops_.gemm(stream_, y, x, false, dense, true, 1, 0); });
      product("experts" + shape, flops, [&, this] { ops_.expert_product(stream_, y, x, w, first, true); });
      product("experts_dx" + shape, flops,
              [&, this] { ops_.expert_product(stream_, dx, y, w, first, false); });
      product("experts_dw" + shape, flops,
              [&, this] { ops_.expert_product_weight(stream_, dw, y, x, first, true); });
    }
  }

  // Graphs of operations: activations of a model with 16 heads of 64.
  void views(DType dtype) {
    const int64_t samples = 8, seq = sized(1024), heads = 16, width = 64;
    const int64_t rows = samples * seq, columns = heads * width;
    const auto size = static_cast<double>(size_of(dtype)), count = static_cast<double>(rows * columns);
    const std::string suffix = "_" + std::string(name_of(dtype));
    const Tensor x = numbers(dtype, {rows, columns}), y = numbers(dtype, {rows, columns});
    const Tensor row = numbers(dtype, {columns}), column = numbers(dtype, {rows}), one = numbers(dtype, {1});
    const auto kept = std::move(buffers_);
    const Box box{2, {rows, columns}};
    const StridedView whole = contiguous_view(box);
    const auto map = [&](MapOp op, Tensor second, const StridedView& from) {
      const std::array inputs{x, second};
      ops_.map(stream_, y, std::span(inputs).first(size_t(inputs_of(op))), {op, 1, 0, box, {whole, from}});
    };
    time("copy" + suffix, 2 * size * count, [&] { ops_.copy(stream_, y, x); });
    time("add" + suffix, 3 * size * count, [&] { ops_.add(stream_, y, y, x); });
    time("map_add" + suffix, 3 * size * count, [&] { map(MapOp::Add, y, whole); });
    time("map_add_row" + suffix, 2 * size * count, [&] { map(MapOp::Add, row, {0, {0, 1}}); });
    time("map_add_column" + suffix, 2 * size * count, [&] { map(MapOp::Add, column, {0, {1, 0}}); });
    time("map_add_number" + suffix, 2 * size * count, [&] { map(MapOp::Add, one, {}); });
    time("gelu" + suffix, 2 * size * count, [&] { ops_.gelu(stream_, y, x); });
    for (MapOp op : {MapOp::Gelu, MapOp::GeluErf, MapOp::Erf, MapOp::Log, MapOp::Cos, MapOp::Sqrt})
      time(std::string("map_") + name_of(op) + suffix, 2 * size * count, [&] { map(op, {}, {}); });
    const Box split{4, {samples, heads, seq, width}};
    const StridedView of_heads{0, {seq * columns, width, columns, 1}};
    time("heads_first" + suffix, 2 * size * count,
         [&] { ops_.strided_copy(stream_, y, contiguous_view(split), x, of_heads, split); });
    const Box turned{2, {columns, rows}};
    time("transposed" + suffix, 2 * size * count, [&] {
      ops_.strided_copy(stream_, y, contiguous_view(turned), x, {0, {1, columns}}, turned);
    });
    const Tensor sums = memory(accumulate_type(dtype), {std::max(rows, columns)});
    const auto kept_sums = std::move(buffers_);
    time("column_sum" + suffix, size * count, [&] {
      ops_.column_sum(stream_, {sums.data, sums.dtype, {columns}}, x, true);
    });
    const auto sum = [&](const Tensor& to, const AxisNumbers& strides, bool accumulate) {
      ops_.strided_sum(stream_, to, {0, strides}, x, whole, box, 1, accumulate);
    };
    time("sum_rows" + suffix, size * count, [&] { sum(sums, {0, 1}, true); });
    time("sum_columns" + suffix, size * count, [&] { sum(sums, {1, 0}, false); });
    time("sum_all" + suffix, size * count, [&] { sum(sums, {0, 0}, false); });
    time("sum_none" + suffix, 3 * size * count, [&] { sum(y, {columns, 1}, true); });
    time("softmax" + suffix, 2 * size * count, [&] { ops_.softmax(stream_, y, x); });
    time("softmax_backward" + suffix, 3 * size * count, [&] { ops_.softmax_backward(stream_, y, y, x); });
    const BatchedProduct scores{samples,
                                heads,
                                seq,
                                seq,
                                width,
                                {0, seq * columns, width, columns},
                                {0, seq * columns, width, columns, true},
                                {0, heads * seq * seq, seq * seq, seq}};
    const Tensor result = memory(dtype, {samples * heads * seq, seq});
    product("batched_product" + suffix, 2.0 * static_cast<double>(seq) * count,
            [&] { ops_.batched_product(stream_, result, x, y, scores); });
  }

  static constexpr int kCalls = 10;
  const OpTable& ops_;
  int64_t divisor_;
  std::vector<std::string> once_;
  ThreadPool pool_{1};
  Stream stream_;
  std::vector<Buffer> buffers_;
  double copy_ = 0;  // bytes per second of the first operation, the copy
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string where = argc > 1 ? argv[1] : "";
    if (where != "cuda" && where != "cpu") {
      std::fprintf(stderr, "usage: op_bench cuda|cpu [DIVISOR] [products | views | OPERATION...]\n");
      return 2;
    }
    const bool has_divisor = argc > 2 && std::atoi(argv[2]) != 0;
    const int64_t divisor = has_divisor ? std::max(1, std::atoi(argv[2])) : 1;
    const std::vector<std::string> once(argv + std::min(argc, has_divisor ? 3 : 2), argv + argc);
    Bench(where == "cuda" ? cuda_ops(0) : cpu_ops(), divisor, once).run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "op_bench: %s\n", error.what());
    return 1;
  }
}
