#include "ops/cuda/attention.h"

#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_queue.h"
#include "ops/cuda/attention_graphs.cuh"
#include "ops/cuda/entries.h"
#include "ops/launch_support.h"

namespace trifold::cuda {

namespace {

constexpr size_t kAlignment = 256;
size_t round_up(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// What the calling thread has of cuDNN on one device.
class Engine {
 public:
  Engine() : handle_(make_handle()) {}

  cudnnHandle_t handle() const { return handle_; }
  const Plan& plan(const AttentionShape& shape, bool backward) {
    const auto key = std::pair(shape, backward);
    if (const auto known = plans_.find(key); known != plans_.end()) return known->second;
    const Graph graph = backward ? attention_backward_graph(shape) : attention_forward_graph(shape);
    return plans_
        .emplace(key, Plan(graph, {handle_, nullptr}, backward ? "attention's backward" : "attention"))
        .first->second;
  }

 private:
  cudnnHandle_t handle_;
  std::map<std::pair<AttentionShape, bool>, Plan> plans_;
};

// Never destroyed: CUDA may be gone before threads are.
Engine& engine_on(CudaQueue& queue) {
  static thread_local auto& all = *new std::map<int, Engine>();
  queue.device().use();
  Engine& engine = all.try_emplace(queue.device().index()).first->second;
  use_stream(engine.handle(), queue.native());
  return engine;
}

// cuDNN has no f32 and f64, and its dropout other masks than the processor's; its graphs here know nothing of
// samples that end early: those take the plain kernels.
bool is_plain(const Attention& how, DType dtype) {
  return accumulate_type(dtype) == dtype || how.dropout.probability != 0 || how.lengths.data != nullptr;
}

AttentionShape shape_of(const Attention& how, DType dtype) {
  return {how.batch, how.seq, how.heads, how.kv_heads, how.head_dim, dtype, how.causal, true};
}

void check_tensors(const char* op, const Attention& how, const Tensor& out, const Tensor& lse,
                   const Tensor& qkv) {
  const int64_t rows = how.batch * how.seq;
  cpu::expect(op, "out", out, out.dtype, rows * how.heads * how.head_dim);
  cpu::expect(op, "qkv", qkv, out.dtype, rows * (how.heads + 2 * how.kv_heads) * how.head_dim);
  cpu::expect(op, "lse", lse, accumulate_type(out.dtype), rows * how.heads);
}

// The first query, key and value of packed projections, as addresses.
struct Packed {
  Packed(void* memory, const AttentionShape& shape) {
    auto* base = static_cast<std::byte*>(memory);
    const auto head = static_cast<size_t>(shape.width) * size_of(shape.dtype);
    query = base;
    key = base + static_cast<size_t>(shape.heads) * head;
    value = base + static_cast<size_t>(shape.heads + shape.kv_heads) * head;
  }
  void* query;
  void* key;
  void* value;
};

// Host memory that a plan reads while it is enqueued.
struct Scalars {
  float scale;
  float masked = -std::numeric_limits<float>::infinity();
  float one = 1;
};

void forward(CudaQueue& queue, const AttentionShape& shape, double scale, void* out, void* lse, void* qkv) {
  Engine& engine = engine_on(queue);
  const Plan& plan = engine.plan(shape, false);
  const Packed in(qkv, shape);
  Scalars scalars{static_cast<float>(scale)};
  std::vector<int64_t> uids{kQuery, kKey, kValue, kOut, kLse, kScale};
  std::vector<void*> at{in.query, in.key, in.value, out, lse, &scalars.scale};
  if (shape.causal) {
    uids.push_back(kMasked);
    at.push_back(&scalars.masked);
  }
  plan.execute(engine.handle(), uids, at, queue.workspace(static_cast<size_t>(plan.workspace())));
}

struct BackwardTensors {
  void *dqkv, *dout, *qkv, *out, *lse;
};

// Sums that cuDNN keeps beside its own workspace stand behind it.
void backward(CudaQueue& queue, const AttentionShape& shape, double scale, const BackwardTensors& t) {
  Engine& engine = engine_on(queue);
  const Plan& plan = engine.plan(shape, true);
  const Packed in(t.qkv, shape);
  const Packed gradient(t.dqkv, shape);
  Scalars scalars{static_cast<float>(scale)};
  const size_t rows = static_cast<size_t>(shape.batch * shape.heads * shape.seq) * sizeof(float);
  const size_t own = round_up(static_cast<size_t>(plan.workspace()));
  const size_t sums = shape.deterministic ? 0 : rows * static_cast<size_t>(shape.width);
  auto* work = static_cast<std::byte*>(queue.workspace(own + round_up(rows) + sums));
  std::vector<int64_t> uids{kQuery,  kKey,  kValue,  kOut,   kLse, kDout,
                            kDquery, kDkey, kDvalue, kDelta, kOne, kScale};
  std::vector<void*> at{in.query,       in.key,     in.value,       t.out,
                        t.lse,          t.dout,     gradient.query, gradient.key,
                        gradient.value, work + own, &scalars.one,   &scalars.scale};
  if (shape.causal) {
    uids.push_back(kMasked);
    at.push_back(&scalars.masked);
  }
  if (!shape.deterministic) {
    uids.push_back(kDqSum);
    at.push_back(work + own + round_up(rows));
  }
  plan.execute(engine.handle(), uids, at, work);
}

}  // namespace

void attention(Stream& stream, Tensor out, Tensor lse, Tensor qkv, const Attention& how) {
  if (is_plain(how, out.dtype)) return plain_attention(stream, out, lse, qkv, how);
  check_tensors("attention", how, out, lse, qkv);
  const AttentionShape shape = shape_of(how, out.dtype);
  stream.enqueue([queue = stream.queue(), shape, scale = how.scale, o = out.data, l = lse.data,
                  x = qkv.data] { forward(static_cast<CudaQueue&>(*queue), shape, scale, o, l, x); });
}

void attention_backward(Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out, Tensor lse,
                        const Attention& how) {
  if (is_plain(how, out.dtype)) return plain_attention_backward(stream, dqkv, dout, qkv, out, lse, how);
  check_tensors("attention_backward", how, out, lse, qkv);
  cpu::expect("attention_backward", "dqkv", dqkv, out.dtype, qkv.elements());
  cpu::expect("attention_backward", "dout", dout, out.dtype, out.elements());
  const AttentionShape shape = shape_of(how, out.dtype);
  const BackwardTensors tensors{dqkv.data, dout.data, qkv.data, out.data, lse.data};
  stream.enqueue([queue = stream.queue(), shape, scale = how.scale, tensors] {
    backward(static_cast<CudaQueue&>(*queue), shape, scale, tensors);
  });
}

}  // namespace trifold::cuda
