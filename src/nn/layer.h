// Layer: one differentiable step whose three parts can run at different times.
//
//   forward          y = f(x; w)            leaves in `saved` what the backward parts need
//   backward_input   dx = (df/dx)^T dy      assigns dx; may leave dy in `saved`
//   backward_weight  dw += (df/dw)^T dy     reads only `saved`; may run any time later. The first of a step
//                                           assigns dw (Run::adds_to)
//   backward         both, in one call; layers override it where doing both together is faster
//
// One exception: if a backward follows (Run::has_backward), the forward of an output loss in one block
// (tensor_parallel/vocab.h) also accumulates its dw. Such a layer says so (adds_in_forward). The executor of a plan
// therefore provides the gradients of that block, the model's last, before the first forward of a step, and never runs
// a forward of the next step before the gradients of this one are used (docs/decisions/0006).
//
// A layer is stateless: everything that changes is in `Run` and `Saved`, so any number of micro-batches can
// be in flight. Parameters and save slots are declared once, in the constructor, through a BlockBuilder;
// after that the layer is const. Every call only enqueues work on run.stream, so a layer can be walked dry to
// find its memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "data/batch.h"
#include "mesh/mesh.h"
#include "nn/key_cache.h"
#include "nn/param.h"
#include "nn/reports.h"
#include "ops/narrow.h"
#include "ops/ops.h"

namespace trifold {

struct AdapterConfig;

// Index of a tensor that a block keeps from forward (or backward_input) for a later part: a save slot.
struct SlotId {
  int index = -1;
};

// The tensors that one block keeps for one micro-batch, one per declared slot. The memory belongs to the
// arenas of `Run`.
class Saved {
 public:
  explicit Saved(int slots) : tensors_(static_cast<size_t>(slots)) {}
  Tensor& operator[](SlotId slot) { return tensors_[static_cast<size_t>(slot.index)]; }
  const Tensor& operator[](SlotId slot) const { return tensors_[static_cast<size_t>(slot.index)]; }
  std::span<Tensor> tensors() { return tensors_; }
  // Resets all tensors, without releasing for_host's memory.
  void clear() { std::fill(tensors_.begin(), tensors_.end(), Tensor{}); }
  // Pinned memory through which `device` reports values of the micro-batch to the host. It grows on demand and outlives
  // `clear`; each call returns the same memory.
  Tensor for_host(DType dtype, const Shape& shape, Device* device) {
    const size_t bytes = static_cast<size_t>(shape.elements()) * size_of(dtype);
    if (for_host_.bytes() < bytes) for_host_ = Buffer::shared(bytes, device);
    return for_host_.tensor(dtype, shape);
  }

 private:
  std::vector<Tensor> tensors_;
  Buffer for_host_;
};

// Observes the tensors that layers compute: to find where a non-finite value first appears and, in tests, to inject
// one.
class TensorWatch {
 public:
  virtual ~TensorWatch() = default;
  // `tensor` is the `what` ("output", "input gradient") of a layer, computed by the work enqueued on `stream` so far.
  // `layer` is the prefix of its parameters' names. Partial sums are shown before they are summed over the tensor axis.
  virtual void see(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) = 0;
};

// The other half of a pair of actions. A plan runs the halves, a forward and a backward, together on one rank: one
// computes while the other's messages are in flight.
class OtherHalf {
 public:
  explicit OtherHalf(Stream& stream) : exchanges(stream) {}
  virtual ~OtherHalf() = default;
  // Runs the other half until it yields or is done.
  virtual void compute() = 0;

  Stream& exchanges;  // for the collectives of both halves that overlap with computation
};

// The context in which a layer runs. Everything it refers to outlives the call. A layer may pass a copy with another
// arena, for example, to a layer that it calls.
struct Run {
  Stream& stream;  // for all computation
  // For collectives that overlap with computation; may be `stream` itself. A layer that enqueues work on it makes
  // `stream` wait before it returns, so no communicator is used on two streams at once.
  Stream& side;
  const OpTable& ops;
  const Mesh& mesh;
  const ParamSource& params;
  GradSink* grads;  // null if there is no backward
  // Memory for outputs of forward and for saved tensors, until the block's backward_weight. A layer takes them before
  // it marks scratch, so `keep` may be scratch (for an output that is read once) or, in backward, `flow`.
  Arena* keep;
  // Memory for gradients of activations, until the block's backward_weight. A layer takes them before it marks scratch,
  // so within a whole backward `flow` may be scratch too.
  Arena* flow;
  Arena& scratch;      // temporaries: a layer releases what it took before it returns
  const Batch* batch;  // this micro-batch's data; outlives its backward
  // The type of weights, activations and their gradients. Statistics of rows and gradients of parameters have its
  // accumulate_type.
  DType dtype;
  bool training;      // dropout is applied only when true
  uint64_t seed;      // for dropout
  double loss_scale;  // factor of the loss before backward: 1 / (tokens in the global batch); see loss_factor
  Tensor loss_sum;    // f64 [1], += the weighted sum of the losses of this micro-batch
  Tensor weight_sum;  // f64 [1], += the sum of the loss weights
  TensorWatch* watch = nullptr;
  // The arena for a block's output that is only sent to another rank, which need not live as long as `keep`. Null if
  // the output is kept.
  Arena* outgoing = nullptr;
  // f64 [kMostLossTerms], the memory of loss_term; without dims if loss terms are not collected.
  Tensor loss_terms = {};
  // The memory of `counter`, f64 [elements of all counters], and of `host_value`, i32 [elements of all host values];
  // the host and the device can access both. Without dims, counters are not collected, or there are no host values.
  Tensor counters = {};
  Tensor host_values = {};
  // Whether this forward only recomputes saved tensors; its output is not read (nn/recompute.h).
  bool repeats = false;
  // Whether dx of a backward is read. If not, because no parameter of an earlier block is trained, a layer need not
  // compute it and may return an empty tensor.
  bool wants_dx = true;
  // Null if this action is not half of a pair.
  OtherHalf* other_half = nullptr;
  // The earlier positions of the sequence that the batch continues; null if the batch has all positions.
  KeyCache* key_cache = nullptr;
  // Whether factors that only products of linear layers read are written in 8 bits (ops/narrow.h); `ops` has them.
  bool narrow = false;

  // The stream for collectives that are in flight while a layer yields, and for all others of the same communicator:
  // the pair's, or `stream` without a pair.
  Stream& exchanges() const { return other_half != nullptr ? other_half->exchanges : stream; }
  // Makes `on`, a stream for collectives, wait for the work on `stream` so far; returns `on`.
  Stream& after_computing(Stream& on) const {
    if (&on != &stream) on.wait(stream.record());
    return on;
  }
  // An event that completes with the work on `on` so far; an empty one if `on` is `stream`.
  Event end_of(Stream& on) const { return &on == &stream ? Event{} : on.record(); }
  // Calls collective(exchanges()), ordered after earlier and before later work on `stream`.
  template <class Collective>
  void exchange(Collective collective) const {
    collective(after_computing(exchanges()));
    stream.wait(end_of(exchanges()));
  }
  // Yields to the other half. A layer calls it once its communication is enqueued and its further computation depends
  // on it. The number of calls must not depend on data, so that all ranks of a stage interleave the halves, and their
  // collectives, in the same order. A repeated forward does not yield, because the other half has no turns for it.
  void yield() const {
    if (other_half != nullptr && !repeats) other_half->compute();
  }

  // The arena for a block's output.
  Arena& output() const { return outgoing != nullptr ? *outgoing : *keep; }
  // Memory for an activation [rows, columns], or its gradient: of `dtype`, or in narrow form if `in_8bit`.
  Tensor take(Arena& arena, int64_t rows, int64_t columns, bool in_8bit) const {
    return in_8bit ? arena.take(DType::U8, narrow_shape(rows, columns)) : arena.take(dtype, {rows, columns});
  }
  // Passes a tensor to the watch, if there is one. A narrow tensor is not shown; results of its products are.
  void show(std::string_view layer, std::string_view what, Tensor tensor) const {
    if (watch != nullptr && is_present(tensor) && tensor.dtype != DType::U8)
      watch->see(layer, what, tensor, stream);
  }
  // Factors for operations: loss_scale times `constant`; loss_scale times a batch value; and a batch value alone. On a
  // device kernels read them at run time, so a captured graph can be replayed.
  Factor loss_factor(double constant = 1) const {
    const Tensor& factors = batch->loss_factors;
    return factors.data != nullptr ? Factor(constant, factors.rows(0, 1)) : Factor(constant * loss_scale);
  }
  Factor loss_factor(BatchValueId id) const {
    const Tensor& factors = batch->loss_factors;
    const int row = 1 + id.index;
    return factors.data != nullptr ? Factor(1, factors.rows(row, row + 1))
                                   : Factor(loss_scale * batch_value(id));
  }
  Factor batch_factor(BatchValueId id) const {
    const Tensor& factors = batch->loss_factors;
    const int row = 1 + kMostBatchValues + id.index;
    return factors.data != nullptr ? Factor(1, factors.rows(row, row + 1)) : Factor(batch_value(id));
  }
  // Whether this forward is part of a training step, not of evaluation or sampling.
  bool has_backward() const { return training && grads != nullptr; }
  // f64 [1], to which a block adds the loss term's sum over this micro-batch (nn/reports.h). May be called only if
  // loss_terms has dims.
  Tensor loss_term(LossTermId id) const { return loss_terms.rows(id.index, id.index + 1); }
  // Whether counters are collected; `counter` may be called only then.
  bool counts() const { return counters.rank() > 0; }
  Tensor counter(CounterId id) const { return counters.rows(id.first, id.first + id.count); }
  // May be called only if host_values has dims.
  Tensor host_value(HostValueId id) const { return host_values.rows(id.first, id.first + id.count); }
  double batch_value(BatchValueId id) const { return batch->values.at(static_cast<size_t>(id.index)); }
  Tensor weight(ParamId id) const { return params.weight(id); }
  Tensor grad(ParamId id) const { return grads->grad(id); }
  // Whether a backward computes the gradient of the parameter; not if it is frozen. Layers that have several
  // parameters without adapters train all or none of them.
  bool trains(ParamId id) const { return grads->trains(id); }
  // Whether the next write of these gradients must add; the first write of a step assigns. Marks them as begun, so it
  // is called exactly once for each write. If only one of two is begun, sets the other to zero first.
  bool adds_to(ParamId id, std::optional<ParamId> other = {}) const;
  // The gradient, set to zero if it was not begun, for operations that add to some of its rows.
  Tensor grad_from_zero(ParamId id) const {
    if (!adds_to(id)) ops.fill(stream, grad(id), 0.0);
    return grad(id);
  }
  // A copy that keeps everything, including outputs, in another arena.
  Run keeping_in(Arena& other) const {
    Run copy = *this;
    copy.keep = &other;
    copy.outgoing = nullptr;
    return copy;
  }
  // A copy with another arena for `flow`.
  Run flowing_in(Arena& other) const {
    Run copy = *this;
    copy.flow = &other;
    return copy;
  }
};

// Collects the parameters, save slots and reports of one block while its layers are constructed.
class BlockBuilder {
 public:
  // Adds the block's parameters to `params` and its reports to `reports`; these and `mesh` must outlive the builder.
  // With `sequence_parallel`, activations between the linear layers are cut by rows over the tensor axis
  // (tensor_parallel/regions.h), if it has several ranks.
  BlockBuilder(ParamList& params, ReportList& reports, const Mesh& mesh, int block, uint64_t seed,
               bool sequence_parallel = false)
      : params_(params),
        reports_(reports),
        mesh_(mesh),
        block_(block),
        seed_(seed),
        sequence_parallel_(sequence_parallel && mesh.size(Axis::Tp) > 1) {}

  // A parameter that every rank of the tensor axis holds whole. Its gradient is a partial sum over that axis if it is
  // used with this rank's rows alone (under sequence parallelism) or, `inside` a region, with this rank's columns.
  ParamId replicated(const std::string& name, const Shape& shape, Init init, bool decay, bool inside = false);
  // A parameter cut evenly along `dim` over the tensor axis, into at most `pieces` pieces (0: one per rank). If there
  // are more ranks than pieces, consecutive ranks hold copies of one piece (ShardSpec::tensor_copies), and its gradient
  // is a partial sum over these ranks.
  ParamId sharded(const std::string& name, const Shape& global, int dim, Init init, bool decay,
                  int64_t pieces = 0);
  // Part `part` of a parameter that is cut along its first dim into `parts` equal parts, one for each of several
  // blocks; the part is cut further over the tensor axis.
  ParamId sharded_part(const std::string& name, const Shape& global, int part, int parts, Init init,
                       bool decay);
  // A parameter of experts, cut evenly along its first dim over the expert axis, and along dim `inner` over the tensor
  // axis of experts; without `inner`, all ranks of that axis hold it and compute the same gradient. It is used with the
  // tokens of all ranks along these axes, so its gradient is summed over the other axes alone.
  ParamId of_experts(const std::string& name, const Shape& global, std::optional<int> inner, Init init,
                     bool decay);
  // From now on parameters are frozen, and linear layers add the adapters that `adapters` describes (null: neither).
  // `adapters` must outlive the construction of the layers.
  void adapt(const AdapterConfig* adapters) { adapters_ = adapters; }
  const AdapterConfig* adapters() const { return adapters_; }
  // Declares a parameter as frozen, or as trained after all (an adapter's).
  void freeze(ParamId id, bool frozen = true) { params_.set_frozen(id, frozen); }
  // ParamSpec::quantized
  void quantize(ParamId id, const QuantizedForm& form) { params_.set_quantized(id, form); }
  // ParamSpec::added_in_parts
  void added_in_parts(ParamId id) { params_.set_added_in_parts(id); }
  // ParamSpec::is_table. Returns the parameter.
  ParamId table(ParamId id) {
    params_.set_table(id);
    return id;
  }
  // ParamSpec::lr_factor and decay_factor
  void factors(ParamId id, double lr, double decay) { params_.set_factors(id, lr, decay); }
  // A buffer: values that are not trained but set by the trainer between steps (ParamSpec::is_buffer). Every rank holds
  // it whole; it is zero at first.
  ParamId buffer(const std::string& name, const Shape& shape);
  // A second use of the parameter `of` (ParamSpec::tied_to), named "<name of `of`>@<use>".
  ParamId tied(ParamId of, const std::string& use);
  SlotId slot() { return {slots_++}; }
  // A loss term (nn/reports.h), which other blocks may share.
  LossTermId loss_term(const std::string& name) { return reports_.loss_terms.declare(name); }
  // A loss term that reports show under its name (ReportList::shown_terms).
  LossTermId shown_loss_term(const std::string& name) { return reports_.declare_shown(name); }
  // A batch value, which other blocks may share.
  BatchValueId batch_value(const std::string& name) { return reports_.batch_values.declare(name); }
  // A counter, f64 [count], and a host value, i32 [count], of this block.
  CounterId counter(const std::string& name, int64_t count) {
    return reports_.counters.declare(block_, name, count);
  }
  HostValueId host_value(const std::string& name, int64_t count) {
    return reports_.host_values.declare(block_, name, count);
  }

  // Rows of `columns` columns that the block keeps of each position (nn/key_cache.h).
  CachedRowsId cached_rows(int64_t columns) {
    cached_.columns.push_back(columns);
    return {block_, static_cast<int>(cached_.columns.size()) - 1};
  }
  // The block's forward needs all positions of a sample at once, because of `why`.
  void needs_whole_samples(const std::string& why) {
    if (cached_.obstacle.empty()) cached_.obstacle = why;
  }

  int slots() const { return slots_; }
  const CachedRows& cached() const { return cached_; }
  int block() const { return block_; }  // its index in the model
  const Mesh& mesh() const { return mesh_; }
  const ParamList& params() const { return params_; }
  uint64_t seed() const { return seed_; }
  bool sequence_parallel() const { return sequence_parallel_; }
  // The index of this rank's row slice of an activation; 0 if activations are whole.
  int row_part() const { return sequence_parallel_ ? mesh_.coord(Axis::Tp) : 0; }

 private:
  ParamId add(const std::string& name, const Shape& global, const Rect& local, AxisSet replicated,
              AxisSet partial, Init init, bool decay, int tensor_copies = 0);

  ParamList& params_;
  ReportList& reports_;
  const Mesh& mesh_;
  int block_;
  uint64_t seed_;
  bool sequence_parallel_;
  const AdapterConfig* adapters_ = nullptr;
  int slots_ = 0;
  CachedRows cached_;
};

// Dropout for consecutive elements of a tensor with `sample_elements` elements for each sample, from element `first` of
// the micro-batch on. Keyed by (sample of the run, element of the sample), so it is the same on every mesh.
inline Dropout sample_dropout(const Run& run, double probability, PhiloxKey key, int64_t first,
                              int64_t sample_elements) {
  const Batch& batch = *run.batch;
  if (batch.sample.data != nullptr)
    return {probability, key, static_cast<uint64_t>(first), batch.sample, sample_elements};
  return {probability, key, static_cast<uint64_t>(batch.first_sample * sample_elements + first)};
}

// Dropout for an activation x [R, C] that is row slice `row_part` of the micro-batch (BlockBuilder::row_part): calls
// body(begin, end, dropout) for each range of rows [begin, end) that is contiguous in its sample, or once for all rows
// if samples are not cut.
void for_each_dropout(const Run& run, double probability, PhiloxKey key, int row_part, const Tensor& x,
                      FunctionRef<void(int64_t begin, int64_t end, const Dropout& dropout)> body);
// y = drop(x) for such an activation; y may be x.
void drop_activation(const Run& run, Tensor y, Tensor x, double probability, PhiloxKey key, int row_part);

// What the backward of a block computes: nothing, if neither it nor an earlier block has a trained parameter; the
// gradients of its own parameters alone, if no earlier block has one; or the gradient of its input too.
enum class BlockBackward : uint8_t { None, Weights, All };

class Layer {
 public:
  virtual ~Layer() = default;
  virtual Tensor forward(Run& run, Tensor x, Saved& saved) const = 0;
  virtual Tensor backward_input(Run& run, Tensor dy, Saved& saved) const = 0;
  virtual void backward_weight(Run& run, Saved& saved) const = 0;
  // Whether backward_weight reads weights, which it does if it recomputes tensors.
  virtual bool weight_backward_reads_weights() const { return false; }
  virtual Tensor backward(Run& run, Tensor dy, Saved& saved) const {
    const Tensor dx = backward_input(run, dy, saved);
    backward_weight(run, saved);
    return dx;
  }
  // Whether forward adds to gradients of weights when a backward follows.
  virtual bool adds_in_forward() const { return false; }
  // Whether backward_input already adds to gradients of weights, such as a bias that it sums while reading dy.
  virtual bool adds_in_backward_input() const { return false; }
};

}  // namespace trifold
