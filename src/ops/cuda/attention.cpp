#include "ops/cuda/attention.h"

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/cuda/cuda_device.h"
#include "core/cuda/cuda_queue.h"
#include "ops/contract.h"
#include "ops/cuda/attention_choice.h"
#include "ops/cuda/attention_graphs.cuh"
#include "ops/cuda/attention_parts.h"
#include "ops/cuda/block_engine.h"
#include "ops/cuda/entries.h"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/workspace.h"
#include "ops/launch_support.h"

namespace trifold::cuda {

namespace {

// The calling thread's cuDNN state for one device.
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

// Never destroyed: CUDA may be shut down before threads end.
Engine& engine_on(CudaQueue& queue) {
  static thread_local auto& all = *new std::map<int, Engine>();
  queue.device().use();
  Engine& engine = all.try_emplace(queue.device().index()).first->second;
  use_stream(engine.handle(), queue.native());
  return engine;
}

bool is_plain(const Stream& stream, const Attention& attention, DType dtype) {
  if (!is_for_cudnn(attention, dtype) || is_wrong_in_cudnn(attention, cudnn_version())) return true;
  if (stream.queue() == nullptr) return false;  // Dry: nothing is computed
  const CudaDevice& device = static_cast<CudaQueue&>(*stream.queue()).device();
  return is_missing_in_cudnn(attention, device.properties().major);
}

// The scale, lengths, documents and dropout of one call. cuDNN counts the weights of a call from zero, so each call has
// its own seed, derived from the layer's key, its first sample and its first head.
struct Numbers {
  Numbers(const char* op, const Attention& attention)
      : scale(attention.scale),
        dropout(attention.dropout.probability),
        key(cpu::drop_rule(op, attention.dropout)),
        first(cpu::first_head(op, attention)),
        global_heads(attention.global_heads),
        lengths(attention.lengths.data),
        first_keys(attention.first_keys.data) {}
  double scale, dropout;
  cpu::DropRule key;
  cpu::LateIndex first;
  int64_t global_heads;
  void* lengths;     // null: all keys are valid
  void* first_keys;  // null: every query sees keys from 0 on
};

AttentionShape shape_of(const char* op, const Attention& attention, DType dtype, bool deterministic = true) {
  static_cast<void>(cpu::drop_rule(op, attention.dropout));  // rejects invalid probabilities
  return {.batch = attention.batch,
          .seq = attention.seq,
          .heads = attention.heads,
          .kv_heads = attention.kv_heads,
          .width = attention.head_dim,
          .dtype = dtype,
          .causal = attention.causal,
          .deterministic = deterministic,
          .dropout = attention.dropout.probability,
          .lengths = attention.lengths.data != nullptr,
          .documents = attention.first_keys.data != nullptr};
}

AttentionSize size_of_call(const AttentionShape& shape) {
  return {shape.batch, shape.seq,     shape.heads,         shape.kv_heads,
          shape.width, shape.lengths, shape.deterministic, shape.dropout > 0};
}

// The addresses of the first query, key and value in packed projections.
struct Packed {
  void *query, *key, *value;
};

// Host memory that a plan reads while it is enqueued.
struct Scalars {
  explicit Scalars(const Numbers& numbers) : Scalars(numbers.scale, numbers.dropout) {}
  Scalars(double factor, double dropout)
      : scale(static_cast<float>(factor)),
        keep(static_cast<float>(1 - dropout)),
        grow(static_cast<float>(1 / (1 - dropout))) {}
  float scale;
  float masked = -std::numeric_limits<float>::infinity();
  float hidden = -1e30F;  // below all scores, and exp(hidden - any score) is 0
  float keep, grow;
};

// The arguments of a plan: addresses of tensors by uid.
class Arguments {
 public:
  void add(int64_t uid, void* address) {
    uids_.push_back(uid);
    addresses_.push_back(address);
  }
  // Adds what both directions need. `inputs` is the memory for attention_inputs().
  void add_common(CudaQueue& queue, const AttentionShape& shape, const Numbers& numbers, Scalars& scalars,
                  std::byte* inputs) {
    add(kScale, &scalars.scale);
    if (shape.causal || shape.lengths) add(kMasked, &scalars.masked);
    if (shape.documents) {
      add(kFirstKeys, numbers.first_keys);
      add(kHidden, &scalars.hidden);
    }
    const auto stream = static_cast<CudaStream>(queue.native());
    if (shape.dropout > 0) {
      auto* words = reinterpret_cast<int64_t*>(inputs);
      dropout_seed(stream, words, numbers.key, numbers.first);
      queue.check_launch("attention");
      add(kSeed, words);
      add(kOffset, words + 1);
      add(kGrow, &scalars.grow);
    }
    if (shape.lengths) {
      auto* queries = reinterpret_cast<int32_t*>(inputs + kDropoutNumbers);
      fill(stream, queries, shape.batch, static_cast<double>(shape.seq));
      queue.check_launch("attention");
      add(kKeyLengths, numbers.lengths);
      add(kQueryLengths, queries);
    }
  }
  void execute(Engine& engine, const Plan& plan, void* workspace) const {
    plan.execute(engine.handle(), uids_, addresses_, workspace);
  }

 private:
  std::vector<int64_t> uids_;
  std::vector<void*> addresses_;
};

// The addresses of a part's elements in the tensors of the call.
class Within {
 public:
  Within(const AttentionShape& whole, const AttentionPart& part)
      : whole_(whole), part_(part), offsets_(size_of_call(whole), part) {}

  AttentionShape shape() const {
    AttentionShape own = whole_;
    own.batch = part_.samples;
    own.heads = part_.heads;
    own.kv_heads = part_.kv_heads;
    if (own.heads == whole_.heads) return own;
    own.all_heads = whole_.heads;
    own.all_kv_heads = whole_.kv_heads;
    return own;
  }
  Numbers numbers(const Numbers& all) const {
    Numbers own = all;
    own.first.index += static_cast<uint64_t>(part_.sample * all.global_heads + part_.head);
    if (all.lengths != nullptr) own.lengths = static_cast<int32_t*>(all.lengths) + part_.sample;
    if (all.first_keys != nullptr)
      own.first_keys = static_cast<int32_t*>(all.first_keys) + part_.sample * whole_.seq;
    return own;
  }
  Packed packed(void* memory) const {
    return {at(memory, offsets_.query), at(memory, offsets_.key), at(memory, offsets_.value)};
  }
  void* out(void* memory) const { return at(memory, offsets_.out); }
  void* rows(void* memory) const { return static_cast<float*>(memory) + offsets_.rows; }

 private:
  void* at(void* memory, int64_t element) const {
    return static_cast<std::byte*>(memory) + element * static_cast<int64_t>(size_of(whole_.dtype));
  }

  const AttentionShape& whole_;
  const AttentionPart& part_;
  PartOffsets offsets_;
};

// In device memory, the arguments follow cuDNN's own workspace.
void forward_part(CudaQueue& queue, const AttentionShape& shape, const Numbers& numbers, void* out, void* lse,
                  const Packed& in) {
  Engine& engine = engine_on(queue);
  const Plan& plan = engine.plan(shape, false);
  Scalars scalars(numbers);
  const size_t own = aligned_workspace(static_cast<size_t>(plan.workspace()));
  auto* work = static_cast<std::byte*>(queue.workspace(own + attention_inputs(shape.batch, shape.lengths)));
  Arguments arguments;
  arguments.add(kQuery, in.query);
  arguments.add(kKey, in.key);
  arguments.add(kValue, in.value);
  arguments.add(kOut, out);
  arguments.add(kLse, lse);
  arguments.add_common(queue, shape, numbers, scalars, work + own);
  arguments.execute(engine, plan, work);
}

void forward(CudaQueue& queue, const AttentionShape& shape, const Numbers& numbers, void* out, void* lse,
             void* qkv) {
  // Without dropout, forward is one part: its memory does not grow with the square of the positions.
  AttentionSize size = size_of_call(shape);
  size.deterministic = false;
  for (const AttentionPart& part : attention_parts(size)) {
    const Within at(shape, part);
    forward_part(queue, at.shape(), at.numbers(numbers), at.out(out), at.rows(lse), at.packed(qkv));
  }
}

struct BackwardTensors {
  void *dqkv, *dout, *qkv, *out, *lse;
};

// Clears the gradients of padding keys and values: versions of cuDNN differ in whether they write them.
void clear_unseen(CudaQueue& queue, const AttentionShape& shape, const Numbers& numbers, void* dqkv) {
  const int64_t head = shape.width * static_cast<int64_t>(size_of(shape.dtype));
  clear_behind(static_cast<CudaStream>(queue.native()), dqkv, static_cast<const int32_t*>(numbers.lengths),
               shape.batch, shape.seq, (shape.heads + 2 * shape.kv_heads) * head, shape.heads * head);
  queue.check_launch("attention_backward");
}

// Sums that are outside cuDNN's workspace follow the arguments.
void backward_part(CudaQueue& queue, const AttentionShape& shape, const Numbers& numbers,
                   const BackwardTensors& t, const Packed& gradient, const Packed& in) {
  Engine& engine = engine_on(queue);
  const Plan& plan = engine.plan(shape, true);
  Scalars scalars(numbers);
  const size_t rows =
      aligned_workspace(static_cast<size_t>(shape.batch * shape.heads * shape.seq) * sizeof(float));
  const size_t own = aligned_workspace(static_cast<size_t>(plan.workspace()));
  const size_t inputs = attention_inputs(shape.batch, shape.lengths);
  const size_t sums = shape.deterministic ? 0 : rows * static_cast<size_t>(shape.width);
  auto* work = static_cast<std::byte*>(queue.workspace(own + inputs + rows + sums));
  Arguments arguments;
  arguments.add(kQuery, in.query);
  arguments.add(kKey, in.key);
  arguments.add(kValue, in.value);
  arguments.add(kOut, t.out);
  arguments.add(kLse, t.lse);
  arguments.add(kDout, t.dout);
  arguments.add(kDquery, gradient.query);
  arguments.add(kDkey, gradient.key);
  arguments.add(kDvalue, gradient.value);
  arguments.add(kDelta, work + own + inputs);
  arguments.add(kKeep, &scalars.keep);
  if (!shape.deterministic) arguments.add(kDqSum, work + own + inputs + rows);
  arguments.add_common(queue, shape, numbers, scalars, work + own);
  arguments.execute(engine, plan, work);
}

void backward(CudaQueue& queue, const AttentionShape& shape, const Numbers& numbers,
              const BackwardTensors& t) {
  for (const AttentionPart& part : attention_parts(size_of_call(shape))) {
    const Within at(shape, part);
    const BackwardTensors tensors{nullptr, at.out(t.dout), nullptr, at.out(t.out), at.rows(t.lse)};
    backward_part(queue, at.shape(), at.numbers(numbers), tensors, at.packed(t.dqkv), at.packed(t.qkv));
  }
  if (shape.lengths) clear_unseen(queue, shape, numbers, t.dqkv);
}

// ---- blocks of context parallelism (block_engine.h) ----

class CudnnBlocks final : public BlockEngine {
 public:
  CudnnBlocks(CudaQueue& queue, bool deterministic)
      : engine_(engine_on(queue)), deterministic_(deterministic) {}

  size_t scratch_bytes(const BlockShape& block, bool backward) override {
    size_t most = 0;
    for (const AttentionPart& part : parts_of(block, backward)) {
      const AttentionShape shape = shape_of_part(block, part, backward);
      const size_t own = aligned_workspace(static_cast<size_t>(engine_.plan(shape, backward).workspace()));
      most = std::max(most, own + (backward ? sums_bytes(shape) : size_t{0}));
    }
    return most;
  }

  void forward(const BlockShape& block, const BlockForward& t, void* scratch) override {
    Scalars scalars(block.scale, 0);
    for (const AttentionPart& part : parts_of(block, false)) {
      const Plan& plan = engine_.plan(shape_of_part(block, part, false), false);
      const Offsets at(block, part);
      Arguments arguments;
      arguments.add(kQuery, at.number(t.query, at.query));
      arguments.add(kKey, at.number(t.key, at.key));
      arguments.add(kValue, at.number(t.value, at.key));
      arguments.add(kOut, at.number(t.out, at.dense));
      arguments.add(kLse, t.lse + at.sum);
      add_scalars(arguments, block, scalars);
      arguments.execute(engine_, plan, scratch);
    }
  }

  void backward(const BlockShape& block, const BlockBackward& t, void* scratch) override {
    Scalars scalars(block.scale, 0);
    for (const AttentionPart& part : parts_of(block, true)) {
      const AttentionShape shape = shape_of_part(block, part, true);
      const Plan& plan = engine_.plan(shape, true);
      const Offsets at(block, part);
      auto* sums =
          static_cast<std::byte*>(scratch) + aligned_workspace(static_cast<size_t>(plan.workspace()));
      Arguments arguments;
      arguments.add(kQuery, at.number(t.query, at.query));
      arguments.add(kKey, at.number(t.key, at.key));
      arguments.add(kValue, at.number(t.value, at.key));
      arguments.add(kOut, at.number(t.out, at.out));
      arguments.add(kLse, const_cast<float*>(t.lse) + at.sum);
      arguments.add(kDout, at.number(t.dout, at.out));
      arguments.add(kDquery, at.number(t.dquery, at.dense));
      arguments.add(kDkey, at.number(t.dkey, at.dense_key));
      arguments.add(kDvalue, at.number(t.dvalue, at.dense_key));
      arguments.add(kDelta, sums);
      arguments.add(kKeep, &scalars.keep);
      if (!deterministic_) arguments.add(kDqSum, sums + rows_bytes(shape));
      add_scalars(arguments, block, scalars);
      arguments.execute(engine_, plan, scratch);
    }
  }

 private:
  // A part's first elements in the tensors of a block.
  struct Offsets {
    Offsets(const BlockShape& block, const AttentionPart& part) : dtype(block.dtype) {
      const int64_t row = (block.all_heads + 2 * block.all_kv_heads) * block.width;
      const int64_t key_row = 2 * block.kv_heads * block.width;
      query = part.sample * block.query_rows * row + part.head * block.width;
      key = part.sample * block.key_rows * key_row + part.kv_head * block.width;
      out = (part.sample * block.query_rows * block.all_heads + part.head) * block.width;
      dense = (part.sample * block.queries * block.heads + part.head) * block.width;
      dense_key = part.sample * block.keys * key_row + part.kv_head * block.width;
      sum = (part.sample * block.heads + part.head) * block.queries;
    }
    void* number(const void* memory, int64_t element) const {
      return static_cast<std::byte*>(const_cast<void*>(memory)) +
             element * static_cast<int64_t>(size_of(dtype));
    }
    DType dtype;
    int64_t query, key, out, dense, dense_key, sum;
  };

  // Forward is one part: its memory does not grow with the square of the positions.
  std::vector<AttentionPart> parts_of(const BlockShape& block, bool backward) const {
    return attention_parts({.batch = block.batch,
                            .seq = block.queries,
                            .heads = block.heads,
                            .kv_heads = block.kv_heads,
                            .width = block.width,
                            .deterministic = backward && deterministic_,
                            .keys = block.keys});
  }
  AttentionShape shape_of_part(const BlockShape& block, const AttentionPart& part, bool backward) const {
    return {.batch = part.samples,
            .seq = block.queries,
            .heads = part.heads,
            .kv_heads = part.kv_heads,
            .width = block.width,
            .dtype = block.dtype,
            .causal = block.causal,
            .deterministic = !backward || deterministic_,
            .all_heads = block.all_heads,
            .all_kv_heads = block.all_kv_heads,
            .keys = block.keys,
            .query_rows = block.query_rows,
            .key_rows = block.key_rows,
            .given_heads = block.kv_heads};
  }
  static size_t rows_bytes(const AttentionShape& shape) {
    return aligned_workspace(static_cast<size_t>(shape.batch * shape.heads * shape.seq) * sizeof(float));
  }
  size_t sums_bytes(const AttentionShape& shape) const {
    return rows_bytes(shape) * (deterministic_ ? size_t{1} : static_cast<size_t>(1 + shape.width));
  }
  static void add_scalars(Arguments& arguments, const BlockShape& block, Scalars& scalars) {
    arguments.add(kScale, &scalars.scale);
    if (block.causal) arguments.add(kMasked, &scalars.masked);
  }

  Engine& engine_;
  bool deterministic_;
};

// The arguments of a call until the stream comes to it; too many for a Task.
struct BlocksCall {
  Tensor out, lse, qkv;
  Attention attention;
  Tensor dqkv = {}, dout = {};
};

void forward_in_blocks(Stream& stream, const BlocksCall& call) {
  stream.enqueue([queue = stream.queue(), kept = std::make_shared<const BlocksCall>(call)] {
    CudnnBlocks engine(static_cast<CudaQueue&>(*queue), true);
    void* scratch = queue->workspace(scratch_of_blocks(engine, kept->attention, kept->qkv.dtype, false));
    attention_in_blocks(static_cast<CudaStream>(queue->native()), engine, scratch, kept->out, kept->lse,
                        kept->qkv, kept->attention);
    queue->check_launch("attention");
  });
}

void backward_in_blocks(Stream& stream, const BlocksCall& call, bool deterministic) {
  stream.enqueue([queue = stream.queue(), kept = std::make_shared<const BlocksCall>(call), deterministic] {
    CudnnBlocks engine(static_cast<CudaQueue&>(*queue), deterministic);
    void* scratch = queue->workspace(scratch_of_blocks(engine, kept->attention, kept->qkv.dtype, true));
    attention_in_blocks_backward(static_cast<CudaStream>(queue->native()), engine, scratch, kept->dqkv,
                                 kept->dout, kept->qkv, kept->out, kept->lse, kept->attention);
    queue->check_launch("attention_backward");
  });
}

}  // namespace

void attention(Stream& stream, Tensor out, Tensor lse, Tensor qkv, const Attention& attention) {
  if (is_plain(stream, attention, qkv.dtype)) return plain_attention(stream, out, lse, qkv, attention);
  if (attention.rows.rows() > 0) return forward_in_blocks(stream, {out, lse, qkv, attention});
  const AttentionShape shape = shape_of("attention", attention, out.dtype);
  stream.enqueue([queue = stream.queue(), shape, numbers = Numbers("attention", attention), o = out.data,
                  l = lse.data,
                  x = qkv.data] { forward(static_cast<CudaQueue&>(*queue), shape, numbers, o, l, x); });
}

namespace {

void backward_as(Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out, Tensor lse,
                 const Attention& attention, bool deterministic) {
  if (is_plain(stream, attention, out.dtype))
    return plain_attention_backward(stream, dqkv, dout, qkv, out, lse, attention);
  if (attention.rows.rows() > 0)
    return backward_in_blocks(stream, {out, lse, qkv, attention, dqkv, dout}, deterministic);
  const AttentionShape shape = shape_of("attention_backward", attention, out.dtype, deterministic);
  const BackwardTensors tensors{dqkv.data, dout.data, qkv.data, out.data, lse.data};
  stream.enqueue([queue = stream.queue(), shape, numbers = Numbers("attention_backward", attention),
                  tensors] { backward(static_cast<CudaQueue&>(*queue), shape, numbers, tensors); });
}

}  // namespace

void attention_backward(Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out, Tensor lse,
                        const Attention& attention) {
  backward_as(stream, dqkv, dout, qkv, out, lse, attention, true);
}

void attention_backward_in_any_order(Stream& stream, Tensor dqkv, Tensor dout, Tensor qkv, Tensor out,
                                     Tensor lse, const Attention& attention) {
  contract::checks().attention_backward(stream, dqkv, dout, qkv, out, lse, attention);
  backward_as(stream, dqkv, dout, qkv, out, lse, attention, false);
}

void add_attention(OpTable& ops) {
  ops.attention = attention;
  ops.attention_backward = attention_backward;
  ops.attention_sinks = attention_sinks;
  ops.attention_sinks_backward = attention_sinks_backward;
}

}  // namespace trifold::cuda
