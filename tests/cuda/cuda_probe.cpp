// Measures the available implementations of products, attention and the output loss on the first GPU, for tests/gpu.sh:
// the basis for choosing between them.
//
//   cuda_probe [--seconds N] [--json FILE]
//   cuda_probe --experts                     only the products of experts (expert_probe.h)
//
// Measures for N seconds (default 85) at most, and at least what it has begun; writes FILE (probe.h says what
// is in it) after each model and prints a summary.
//
// Exit status: 0; 1 where there is no GPU, FILE cannot be written or nothing could be measured; 2 for other
// arguments.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <string>

#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_queue.h"
#include "core/error.h"
#include "core/random.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "cuda/expert_probe.h"
#include "cuda/probe.h"
#include "ops/composed.h"
#include "ops/cuda/attention_graphs.cuh"
#include "ops/cuda/lt_product.h"
#include "ops/cuda/table.h"

namespace trifold::probe {
namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

class CudaProbe final : public ProbeDevice {
 public:
  CudaProbe()
      : device_(first_device()),
        ops_(cuda::make_table(&device_)),
        stream_(Stream::Mode::Inline, pool_, &device_) {
    const size_t most = size_t{256} << 20;  // of any tensor of a block
    for (Buffer* each : {&a_, &b_, &d_, &aux_}) {
      *each = Buffer(most, &device_);
      fill(each->tensor(DType::BF16, {static_cast<int64_t>(most / 2)}));
    }
    bias_ = Buffer(size_t{1} << 20, &device_);
  }

  std::string name() override { return device_.name(); }

  double copy(int64_t bytes) override {
    const Buffer from(static_cast<size_t>(bytes), &device_), to(static_cast<size_t>(bytes), &device_);
    fill(from.tensor(DType::BF16, {bytes / 2}));
    return time([&] {
      ops_.copy(stream_, to.tensor(DType::BF16, {bytes / 2}), from.tensor(DType::BF16, {bytes / 2}));
    });
  }

  std::vector<double> product(const ProductCase& each, int most_algorithms) override {
    const cuda::Product product = product_of(each);
    std::vector<double> seconds;
    for (const auto& algorithm : cuda::proposed_algorithms(queue(), product, most_algorithms)) {
      try {
        seconds.push_back(time([&] { cuda::run_product(queue(), product, algorithm); }));
      } catch (const Error&) {
        // A proposed algorithm may still be rejected; the others are measured.
      }
    }
    return seconds;
  }

  double unfused(const ProductCase& each) override {
    using Parts = Composed<cuda::raw_ops<cuda::F32Products::Exact>>;
    // As the operations of a layer see them, by rows.
    const Tensor w = a_.tensor(DType::BF16, {each.k, each.m});
    const Tensor x = b_.tensor(DType::BF16, {each.n, each.k});
    const Tensor y = d_.tensor(DType::BF16, {each.n, each.m});
    const Tensor z = aux_.tensor(DType::BF16, {each.n, each.m});
    const Tensor bias = bias_.tensor(DType::BF16, {each.m});
    switch (each.variant) {
      case Variant::Bias:
        return time([&] { Parts::affine(stream_, y, x, w.reshape({each.m, each.k}), bias); });
      case Variant::GeluAux:
        return time([&] {
          Parts::affine(stream_, z, x, w.reshape({each.m, each.k}), bias);
          ops_.gelu(stream_, y, z);
        });
      case Variant::DGelu:
        return time([&] { Parts::affine_backward_gelu(stream_, y, x, w, z); });
      default:
        fail("{} has nothing to fuse", name_of(each.variant));
    }
  }

  double attention(const Model& model, bool backward, bool deterministic) override {
    const cuda::AttentionShape shape{.batch = model.batch,
                                     .seq = Model::kPositions,
                                     .heads = model.heads,
                                     .kv_heads = model.heads,
                                     .width = model.width / model.heads,
                                     .deterministic = deterministic};
    if (handle_ == nullptr) handle_ = cuda::make_handle();
    cuda::use_stream(handle_, queue().native());
    const cuda::Plan plan(
        backward ? cuda::attention_backward_graph(shape) : cuda::attention_forward_graph(shape),
        {handle_, nullptr}, "attention");
    const auto numbers = static_cast<size_t>(model.rows() * model.heads);
    const Buffer work(static_cast<size_t>(plan.workspace()) + 256, &device_);
    const Buffer lse(numbers * sizeof(float), &device_), delta(numbers * sizeof(float), &device_);
    const Buffer sums(
        backward && !deterministic ? numbers * sizeof(float) * static_cast<size_t>(shape.width) : 4,
        &device_);
    const auto part =
        static_cast<size_t>(model.width) * sizeof(Bfloat16);  // of a row: its queries, keys or values
    float scale = 1 / std::sqrt(static_cast<float>(shape.width));
    float masked = -std::numeric_limits<float>::infinity();
    float keep = 1;
    std::map<int64_t, void*> given{
        {cuda::kQuery, a_.data()}, {cuda::kKey, a_.data() + part}, {cuda::kValue, a_.data() + 2 * part},
        {cuda::kOut, b_.data()},   {cuda::kLse, lse.data()},       {cuda::kScale, &scale},
        {cuda::kMasked, &masked}};
    if (backward) {
      given.insert({{cuda::kDout, aux_.data()},
                    {cuda::kDquery, d_.data()},
                    {cuda::kDkey, d_.data() + part},
                    {cuda::kDvalue, d_.data() + 2 * part},
                    {cuda::kDelta, delta.data()},
                    {cuda::kKeep, &keep}});
      if (!deterministic) given.insert({cuda::kDqSum, sums.data()});
    }
    std::vector<int64_t> uids;
    std::vector<void*> addresses;
    for (const auto& [uid, address] : given) {
      uids.push_back(uid);
      addresses.push_back(address);
    }
    return time([&] { plan.execute(handle_, uids, addresses, work.data()); });
  }

  double loss(const Model& model, int64_t rows) override {
    const int64_t vocabulary = Model::kVocabulary, all = model.rows();
    if (logits_.bytes() == 0) {
      logits_ = Buffer(static_cast<size_t>(loss_chunks_most() * vocabulary) * sizeof(Bfloat16), &device_);
      rows_ = Buffer(static_cast<size_t>(4 * loss_chunks_most()) * sizeof(float), &device_);
    }
    const Buffer gradient(static_cast<size_t>(vocabulary * model.width) * sizeof(float), &device_);
    const Tensor w = b_.tensor(DType::BF16, {vocabulary, model.width}),
                 dw = gradient.tensor(DType::F32, {vocabulary, model.width});
    const Tensor x = a_.tensor(DType::BF16, {all, model.width}),
                 dx = d_.tensor(DType::BF16, {all, model.width});
    const Tensor logits = logits_.tensor(DType::BF16, {rows, vocabulary});
    const Tensor numbers = rows_.tensor(DType::F32, {4, rows});
    const auto of_rows = [&](int64_t i) { return numbers.flat(i * rows, (i + 1) * rows); };
    const Tensor labels{of_rows(3).data, DType::I32, {rows}};  // zeros: each row's label is the first id
    return time([&] {
      for (int64_t begin = 0; begin < all; begin += rows) {
        const Tensor in = x.rows(begin, begin + rows);
        ops_.gemm(stream_, logits, in, false, w, true, 1, 0);
        ops_.cross_entropy_all(stream_, logits, of_rows(0), of_rows(1), of_rows(2), logits, labels,
                               of_rows(2), 1, 0, vocabulary);
        ops_.gemm(stream_, dx.rows(begin, begin + rows), logits, false, w, false, 1, 0);
        ops_.gemm(stream_, dw, logits, true, in, false, 1, 1);
      }
    });
  }

 private:
  static int first_device() {
    check(cuda::device_count() > 0, "there is no CUDA device");
    return 0;
  }
  static int64_t loss_chunks_most() { return *std::max_element(loss_chunks().begin(), loss_chunks().end()); }
  cuda::CudaQueue& queue() { return static_cast<cuda::CudaQueue&>(*stream_.queue()); }

  cuda::Product product_of(const ProductCase& each) {
    cuda::Product product{.factors = DType::BF16,
                          .result = each.is_f32() ? DType::F32 : DType::BF16,
                          .m = each.m,
                          .n = each.n,
                          .k = each.k,
                          .transpose_a = each.transpose_a,
                          .transpose_b = each.transpose_b,
                          .a = a_.data(),
                          .b = b_.data(),
                          .d = d_.data(),
                          .alpha = 1,
                          .beta = each.variant == Variant::F32Added ? 1.0 : 0.0};
    switch (each.variant) {
      case Variant::Bias:
        product.epilogue = cuda::Epilogue::Bias;
        product.bias = bias_.data();
        break;
      case Variant::GeluAux:
        product.epilogue = cuda::Epilogue::GeluAuxBias;
        product.bias = bias_.data();
        product.aux = aux_.data();
        break;
      case Variant::DGelu:
        product.epilogue = cuda::Epilogue::DGelu;
        product.aux = aux_.data();
        break;
      default:
        break;
    }
    return product;
  }

  // Random numbers below one half in size: what zeros take says little. The first million is repeated.
  void fill(const Tensor& tensor) {
    const int64_t all = tensor.elements(), drawn = std::min<int64_t>(all, 1 << 20);
    const Buffer host(static_cast<size_t>(drawn) * sizeof(Bfloat16));
    auto* numbers = host.tensor(DType::BF16, {drawn}).as<Bfloat16>();
    for (int64_t i = 0; i < drawn; ++i)
      numbers[i] = static_cast<Bfloat16>(
          static_cast<double>(philox_word({1, 2}, static_cast<uint64_t>(i))) * 0x1p-32 - 0.5);
    ops_.copy(stream_, tensor.flat(0, drawn), host.tensor(DType::BF16, {drawn}));
    for (int64_t done = drawn; done < all; done *= 2)
      ops_.copy(stream_, tensor.flat(done, std::min(all, 2 * done)),
                tensor.flat(0, std::min(all, 2 * done) - done));
    stream_.synchronize();
  }

  // Seconds of a call: the best of two rounds that take a few milliseconds, after one call that does not
  // count.
  template <class Work>
  double time(const Work& work) {
    work();
    stream_.synchronize();
    auto start = Clock::now();
    work();
    stream_.synchronize();
    const int calls = std::clamp(static_cast<int>(4e-3 / since(start)), 1, 50);
    double best = std::numeric_limits<double>::infinity();
    for (int round = 0; round < 2; ++round) {
      start = Clock::now();
      for (int i = 0; i < calls; ++i) work();
      stream_.synchronize();
      best = std::min(best, since(start) / calls);
    }
    return best;
  }

  cuda::CudaDevice device_;
  OpTable ops_;
  ThreadPool pool_{1};
  Stream stream_;
  cudnnHandle_t handle_ = nullptr;
  Buffer a_, b_, d_, aux_, bias_, logits_, rows_;
};

int run_probe(double seconds, const std::string& file) {
  const auto start = Clock::now();
  CudaProbe device;
  const auto save = [&](const nlohmann::json& report) {
    if (file.empty()) return;
    std::ofstream out(file);
    out << report.dump(1) << '\n';
    check(out.flush().good(), "{} cannot be written", file);
  };
  const nlohmann::json report = run(device, {seconds, [&] { return since(start); }, save});
  for (const std::string& line : summary(report)) std::printf("%s\n", line.c_str());
  return report["products"].empty() ? 1 : 0;
}

}  // namespace
}  // namespace trifold::probe

int main(int argc, char** argv) {
  double seconds = 85;
  std::string file;
  const bool experts = argc == 2 && std::string(argv[1]) == "--experts";
  for (int i = experts ? argc : 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 == argc || (option != "--seconds" && option != "--json")) {
      std::fprintf(stderr, "usage: cuda_probe [--seconds N] [--json FILE] | --experts\n");
      return 2;
    }
    if (option == "--json")
      file = argv[i + 1];
    else
      seconds = std::atof(argv[i + 1]);
  }
  try {
    return experts ? trifold::probe::run_expert_probe() : trifold::probe::run_probe(seconds, file);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cuda_probe: %s\n", error.what());
    return 1;
  }
}
