#include "bench/attention.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>

#include "bench/bench.h"
#include "core/clock.h"
#include "core/median.h"
#include "run/device.h"
#include "run/host.h"

namespace trifold {

AttentionCall::AttentionCall(const OpTable& ops, Stream& stream, const PretrainConfig& run)
    : ops_(ops), stream_(stream) {
  const ModelConfig& model = run.model;
  const int64_t tensor = run.mesh.tensor_model_parallel_size;
  const DType dtype = compute_type(run.precision);
  attention_.batch = run.batch.micro_batch_size;
  attention_.seq = model.seq_length;
  attention_.heads = model.num_attention_heads / tensor;
  attention_.kv_heads = std::max(tensor, key_heads(model)) / tensor;
  attention_.head_dim = head_width(model);
  attention_.scale = 1 / std::sqrt(static_cast<double>(attention_.head_dim));
  attention_.soft_cap = model.attn_logit_softcapping.value_or(0);
  attention_.global_heads = model.num_attention_heads;
  const int64_t rows = attention_.batch * attention_.seq;
  const int64_t columns = attention_.heads * attention_.head_dim;
  const int64_t packed = columns + 2 * attention_.kv_heads * attention_.head_dim;
  qkv_ = zeros(dtype, {rows, packed});
  dqkv_ = zeros(dtype, {rows, packed});
  out_ = zeros(dtype, {rows, columns});
  dout_ = zeros(dtype, {rows, columns});
  lse_ = zeros(accumulate_type(dtype), {attention_.batch, attention_.heads, attention_.seq});
}

Tensor AttentionCall::zeros(DType dtype, const Shape& shape) {
  memory_.emplace_back(static_cast<size_t>(shape.elements()) * size_of(dtype), ops_.device);
  const Tensor tensor = memory_.back().tensor(dtype, shape);
  ops_.fill(stream_, tensor, 0.0);
  return tensor;
}

void AttentionCall::cut_into_documents(int64_t mean) {
  const std::array<int64_t, 4> lengths{mean, std::max<int64_t>(1, mean / 2), mean + mean / 2, mean};
  first_keys_.clear();
  for (int64_t sample = 0; sample < attention_.batch; ++sample) {
    auto document = static_cast<size_t>(sample);
    int64_t begin = 0;
    for (int64_t t = 0; t < attention_.seq; ++t) {
      if (t - begin == lengths[document % lengths.size()]) {
        begin = t;
        ++document;
      }
      first_keys_.push_back(static_cast<int32_t>(begin));
    }
  }
  const Shape shape{attention_.batch, attention_.seq};
  memory_.emplace_back(first_keys_.size() * sizeof(int32_t), ops_.device);
  attention_.first_keys = memory_.back().tensor(DType::I32, shape);
  ops_.copy(stream_, attention_.first_keys, {first_keys_.data(), DType::I32, shape});
}

void AttentionCall::look_through(const WindowSize& window) { attention_.left = window.left; }

void AttentionCall::forward() { ops_.attention(stream_, out_, lse_, qkv_, attention_); }

void AttentionCall::backward() {
  ops_.attention_backward(stream_, dqkv_, dout_, qkv_, out_, lse_, attention_);
}

std::vector<AttentionBench> bench_attention(Communicator& world, const BenchConfig& config) {
  constexpr int64_t kDocuments = 8;
  const PretrainConfig& run = config.run;
  ThreadPool pool(run.mesh.threads_per_rank ? *run.mesh.threads_per_rank : fair_threads(world));
  const OpTable& ops = ops_of(run.mesh, world, run.precision);
  Stream stream(Stream::Mode::Inline, pool, ops.device);
  const int64_t length = run.model.seq_length, document = std::max<int64_t>(1, length / kDocuments);
  std::deque<AttentionCall> calls;
  std::vector<AttentionBench> results;
  calls.emplace_back(ops, stream, run);
  results.push_back({.document = length});
  calls.emplace_back(ops, stream, run).cut_into_documents(document);
  results.push_back({.document = document});
  if (run.model.window_size && run.model.window_size->left >= 0) {
    calls.emplace_back(ops, stream, run).look_through(*run.model.window_size);
    results.push_back({.document = length, .window = run.model.window_size->left + 1});
  }
  const auto seconds_of = [&](auto work) {
    world.barrier();
    const auto start = Clock::now();
    work();
    stream.synchronize();
    return seconds_since(start);
  };
  // Alternating, so that all run under the same conditions.
  std::vector<std::vector<double>> forward(calls.size()), backward(calls.size());
  for (int64_t i = 0; i < config.warmup_iters + config.iters; ++i)
    for (size_t kind = 0; kind < calls.size(); ++kind) {
      const double there = seconds_of([&] { calls[kind].forward(); });
      const double back = seconds_of([&] { calls[kind].backward(); });
      if (i < config.warmup_iters) continue;
      forward[kind].push_back(there);
      backward[kind].push_back(back);
    }
  for (size_t kind = 0; kind < calls.size(); ++kind) {
    std::array<double, 2> seconds{median(forward[kind]), median(backward[kind])};
    Stream host = stream.host();
    world.all_reduce({seconds.data(), DType::F64, {2}}, Reduce::Sum, host);
    results[kind].forward = seconds[0] / world.size();
    results[kind].backward = seconds[1] / world.size();
  }
  return results;
}

}  // namespace trifold
