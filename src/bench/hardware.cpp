#include <algorithm>
#include <cmath>
#include <future>
#include <utility>

#include "bench/attention.h"
#include "bench/bench.h"
#include "comm/thread_comm.h"
#include "core/clock.h"
#include "core/host_memory.h"
#include "core/median.h"
#include "plan/forecast/kernels.h"
#include "run/device.h"
#include "run/host.h"

namespace trifold {

namespace {

double mean_over(Communicator& world, double value) {
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  world.all_reduce({&value, DType::F64, {1}}, Reduce::Sum, stream);
  return value / world.size();
}

// Latencies in seconds and rates in bytes per second between ranks.
struct Links {
  double sum_latency = 0, sum_rate = 0;          // one hop of a sum over all ranks
  double message_latency = 0, message_rate = 0;  // one message between two ranks
};

// Assumes that all ranks are on one node. Collective.
Links measure_links(Communicator& world) {
  const auto mean = [&](double value) { return mean_over(world, value); };
  const std::vector<CommBench> sums = bench_comm(world);
  const double ranks = world.size();
  const CommBench &least = sums.front(), &most = sums.back();
  const double passes = 2 * (ranks - 1);
  Links links;
  links.sum_latency = mean(least.seconds) / passes;
  const double seconds = std::max(mean(most.seconds) - mean(least.seconds), 1e-9);
  links.sum_rate = passes / ranks * static_cast<double>(most.bytes) / seconds;
  // With an odd number of ranks the last one has no partner.
  const auto exchange = [&](size_t bytes) {
    constexpr int64_t kTimes = 20;
    const int with_peer = world.size() / 2 * 2;
    return mean(exchange_seconds(world, bytes, kTimes, cpu_ops())) * world.size() / with_peer;
  };
  constexpr size_t kShort = 64, kLong = size_t{16} << 20;
  links.message_latency = exchange(kShort);
  links.message_rate = static_cast<double>(kLong) / std::max(exchange(kLong) - links.message_latency, 1e-9);
  return links;
}

// Measures the rates of a rank while all ranks do the same. Each member function is collective.
class HardwareTimer {
 public:
  HardwareTimer(Communicator& world, const BenchConfig& config)
      : world_(world),
        run_(config.run),
        pool_(run_.mesh.threads_per_rank ? *run_.mesh.threads_per_rank : fair_threads(world)),
        ops_(ops_of(run_.mesh, world, run_.precision)),
        stream_(Stream::Mode::Inline, pool_, ops_.device),
        dtype_(compute_type(run_.precision)),
        hardware_(find_hardware(ops_.device != nullptr ? "h100" : "cpu", DeviceFigures::Own)) {}

  Hardware measure() {
    hardware_.name = "this machine";
    hardware_.devices_per_node = world_.size();
    if (ops_.device == nullptr) divide_cores();
    memory();
    products();
    attention();
    if (ops_.device == nullptr) links();
    return hardware_;
  }

 private:
  double mean(double value) { return mean_over(world_, value); }

  // Seconds of one call of `work`, which enqueues on the stream: the median of several measurements, each of enough
  // calls to be accurate.
  template <class Work>
  double seconds_of(Work work) {
    constexpr double kLong = 0.05;
    constexpr int kTimes = 5;
    constexpr double kMostCalls = 1e5;
    std::vector<double> seconds;
    double calls = 1;
    for (int i = 0; i <= kTimes; ++i) {
      world_.barrier();
      const auto start = Clock::now();
      for (double call = 0; call < calls; ++call) work();
      stream_.synchronize();
      const double each = seconds_since(start) / calls;
      if (i > 0) seconds.push_back(each);
      if (i == 0) calls = std::clamp(std::ceil(kLong / std::max(each, 1e-9)), 1.0, kMostCalls);
    }
    return mean(median(seconds));
  }

  Buffer buffer(int64_t elements, size_t each) const {
    return Buffer(static_cast<size_t>(elements) * each, ops_.device);
  }

  // Copies too large for caches, and a tiny copy, which measures the launch overhead.
  void memory() {
    constexpr int64_t kLarge = int64_t{32} << 20;
    const size_t each = size_of(DType::F32);
    const Buffer from = buffer(kLarge, each), to = buffer(kLarge, each);
    const auto copy_seconds = [&](int64_t elements) {
      const Tensor x = from.tensor(DType::F32, {elements}), y = to.tensor(DType::F32, {elements});
      ops_.fill(stream_, x, 0.0);
      return seconds_of([&] { ops_.copy(stream_, y, x); });
    };
    const double moved = 2.0 * static_cast<double>(kLarge) * static_cast<double>(each);
    hardware_.memory_gbytes = moved / copy_seconds(kLarge) / 1e9;
    hardware_.memory_share = 1;
    hardware_.launch = 1e6 * copy_seconds(1);
    const bool divided = ops_.device == nullptr;
    const auto bytes = static_cast<double>(divided ? host_memory() : ops_.device->memory().total);
    hardware_.memory_gib = (divided ? hardware_.rank_cores / hardware_.node_cores : 1) * bytes / (1 << 30);
  }

  void divide_cores() {
    const NodeCores cores = measuring_cores(world_, pool_.size());
    hardware_.rank_cores = cores.rank;
    hardware_.node_cores = cores.node;
    hardware_.devices_per_node = cores.ranks;
  }

  // A single rank measures between two threads, which behave like two ranks of the same machine.
  void links() {
    if (world_.size() > 1) return set_links(measure_links(world_));
    if (hardware_.node_cores < 2) return;
    ThreadWorld pair(2);
    std::future<Links> second = std::async(std::launch::async, [&] { return measure_links(*pair.join(1)); });
    try {
      set_links(measure_links(*pair.join(0)));
    } catch (const std::exception& error) {
      pair.abort(error.what());
      throw;
    }
    second.get();
  }

  void set_links(const Links& links) {
    hardware_.nvlink_latency = 1e6 * links.sum_latency;
    hardware_.nvlink_gbytes = links.sum_rate / 1e9;
    hardware_.network_latency = 1e6 * links.message_latency;
    hardware_.adapter_gbytes = links.message_rate / 1e9;
    hardware_.nvlink_share = hardware_.network_share = hardware_.message_share = 1;
  }

  double product_rate(int64_t side, int64_t inner) {
    constexpr double kSeconds = 0.3;
    world_.barrier();
    return mean(measure_gemm(ops_, stream_, dtype_, side, side, inner, kSeconds));
  }

  // The rate of a large product, and the depth at which it is halved, computed from the rate of a flat product.
  void products() {
    const int64_t side = ops_.device != nullptr ? 8192 : 2048;
    constexpr int64_t kFlat = 128;
    const double large = product_rate(side, side);
    const double flat = product_rate(side, kFlat);
    const auto deep = static_cast<double>(side);
    const double depth = (large - flat) / std::max(flat / kFlat - large / deep, 1e-9);
    hardware_.product_depth = std::clamp(depth, 0.0, deep);
    hardware_.product_share = 1;
    // Rates are for two-byte operands; wider ones take proportionally longer.
    const double of_two_bytes = static_cast<double>(size_of(dtype_)) / 2;
    const ProductShape shape{deep, deep, deep};
    hardware_.tflops = 1e-12 * large * of_two_bytes / shape_efficiency(hardware_, shape);
    hardware_.tflops_8bit = 0;
    hardware_.product_share_8bit = 0;
  }

  // The model's attention for one micro-batch on a tensor rank.
  void attention() {
    AttentionCall call(ops_, stream_, run_);
    const Attention& shape = call.shape();
    const double forward = seconds_of([&] { call.forward(); });
    const double backward = seconds_of([&] { call.backward(); });
    // The shares are relative to the forecast at peak rate.
    const AttentionWork work{static_cast<double>(shape.batch * shape.heads), static_cast<double>(shape.seq),
                             static_cast<double>(shape.seq), static_cast<double>(shape.head_dim), 0.5};
    constexpr double kBackwardWork = 2.5;
    const double launch = 1e-6 * hardware_.launch;
    const double at_peak = fused_attention_seconds(hardware_, work, 1) - launch;
    hardware_.attention_share = at_peak / std::max(forward - launch, 1e-9);
    hardware_.flash_share = hardware_.attention_share;
    hardware_.attention_backward = kBackwardWork * (forward - launch) / std::max(backward - launch, 1e-9);
  }

  Communicator& world_;
  const PretrainConfig& run_;
  ThreadPool pool_;
  const OpTable& ops_;
  Stream stream_;
  DType dtype_;
  Hardware hardware_;
};

}  // namespace

Hardware bench_hardware(Communicator& world, const BenchConfig& config) {
  return HardwareTimer(world, config).measure();
}

}  // namespace trifold
