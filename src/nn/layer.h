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
#include "nn/param.h"
#include "nn/reports.h"
#include "ops/ops.h"

namespace trifold {

// Index of a tensor that a block keeps from forward (or backward_input) for a later part.
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
  // Forgets them all.
  void clear() { std::fill(tensors_.begin(), tensors_.end(), Tensor{}); }
  // Memory that the host reads and `device` writes, for what the host must know of the micro-batch. It is allocated
  // where more is needed than ever before, and stays when the tensors are forgotten; the next call returns the same
  // memory.
  Tensor for_host(DType dtype, const Shape& shape, Device* device) {
    const size_t bytes = static_cast<size_t>(shape.elements()) * size_of(dtype);
    if (for_host_.bytes() < bytes) for_host_ = Buffer::shared(bytes, device);
    return for_host_.tensor(dtype, shape);
  }

 private:
  std::vector<Tensor> tensors_;
  Buffer for_host_;
};

// Observes the tensors that layers compute: to find where a non-finite number comes from, and, in tests, to
// inject one.
class TensorWatch {
 public:
  virtual ~TensorWatch() = default;
  // `tensor` is the `what` ("output", "input gradient") of a layer, complete as of now on `stream`. Layers
  // have the names of their parameters. Partial sums are shown before they are summed over the tensor axis.
  virtual void see(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) = 0;
};

// The other half of a pair of actions, a forward and a backward, that a plan runs side by side on one rank: each computes
// while what the other has sent to other ranks is under way.
class OtherHalf {
 public:
  explicit OtherHalf(Stream& stream) : exchanges(stream) {}
  virtual ~OtherHalf() = default;
  // Lets it compute until it waits in turn, or is done.
  virtual void compute() = 0;

  Stream& exchanges;  // where both halves put what is under way while the other one computes
};

// The context in which a layer runs. Everything it refers to outlives the call. It is copyable, so a layer that has another
// layer run with another arena, for example, gives it a copy with that one member replaced.
struct Run {
  Stream& stream;  // where all computation goes
  // For collectives that computation need not wait for immediately; may be `stream` itself. A layer that
  // enqueues work there makes `stream` wait for it before it returns, so no communicator is used on two
  // streams at once.
  Stream& side;
  const OpTable& ops;
  const Mesh& mesh;
  const ParamSource& params;
  GradSink* grads;  // null if there is no backward
  // Outputs of forward and saved tensors; they live until the block's backward_weight. A layer takes them
  // before it marks scratch, so `keep` may be scratch (for an output that is read once) or, in backward,
  // `flow`.
  Arena* keep;
  // Activation gradients; they live until the block's backward_weight. A layer takes them before it marks
  // scratch, so within a whole backward `flow` may be scratch too.
  Arena* flow;
  Arena& scratch;      // temporaries: a layer releases what it took before it returns
  const Batch* batch;  // of this micro-batch; outlives its backward
  DType dtype;         // of weights, activations and their gradients; statistics of rows and the gradients of
                       // parameters have its accumulate_type
  bool training;       // dropout is applied only when true
  uint64_t seed;       // of dropout
  double loss_scale;  // factor of the loss before backward: 1 / (tokens in the global batch); see loss_factor
  Tensor loss_sum;    // f64 [1], += the weighted sum of the losses of this micro-batch
  Tensor weight_sum;  // f64 [1], += the sum of the loss weights
  TensorWatch* watch = nullptr;
  // The arena for the output of a block if another rank continues with it: that output need not live as long
  // as `keep`. Null if the output is kept.
  Arena* outgoing = nullptr;
  // f64 [kMostLossTerms], the memory of loss_term; without dims, loss terms are not wanted.
  Tensor loss_terms = {};
  // f64 [elements of all counters], i32 [elements of all host values]: the memory of counter and host_value, which the host
  // and the device reach. Without dims, nothing is counted, or there are no values.
  Tensor counters = {};
  Tensor host_values = {};
  // This forward is repeated for what it keeps; its output is not read (nn/recompute.h).
  bool repeats = false;
  // Null if this action runs by itself.
  OtherHalf* other_half = nullptr;

  // The stream for all collectives of a communicator of which some are under way while a layer is in `meanwhile`: that of
  // the pair, or `stream`.
  Stream& exchanges() const { return other_half != nullptr ? other_half->exchanges : stream; }
  // `on`, a stream for collectives, where what is enqueued next finds all that `stream` has computed so far.
  Stream& after_computing(Stream& on) const {
    if (&on != &stream) on.wait(stream.record());
    return on;
  }
  // Completes with all that is on `on` so far; at once if that is `stream`.
  Event end_of(Stream& on) const { return &on == &stream ? Event{} : on.record(); }
  // Calls collective(exchanges()) between what `stream` has computed so far and what it computes from now on.
  template <class Collective>
  void exchange(Collective collective) const {
    collective(after_computing(exchanges()));
    stream.wait(end_of(exchanges()));
  }
  // To be called by a layer that has put all it could on exchanges() and has nothing left to compute without what is under
  // way. How often it does so must not depend on data: the ranks of a stage then all interleave the halves, and their
  // collectives, in the same order. A repeated forward does not, because the forward in the other half would run out
  // of turns.
  void meanwhile() const {
    if (other_half != nullptr && !repeats) other_half->compute();
  }

  // The arena for a block's output.
  Arena& output() const { return outgoing != nullptr ? *outgoing : *keep; }
  // Shows a tensor to the watch, if there is one.
  void show(std::string_view layer, std::string_view what, Tensor tensor) const {
    if (watch != nullptr) watch->see(layer, what, tensor, stream);
  }
  // The factor of the loss before backward, times a constant, for operations; on a device, kernels read it at
  // run time.
  Factor loss_factor(double constant = 1) const {
    const Tensor& late = batch->loss_factors;
    return late.data != nullptr ? Factor(constant, late.rows(0, 1)) : Factor(constant * loss_scale);
  }
  // That factor times a batch value; and the batch value alone.
  Factor loss_factor(BatchValueId id) const {
    const Tensor& late = batch->loss_factors;
    const int row = 1 + id.index;
    return late.data != nullptr ? Factor(1, late.rows(row, row + 1)) : Factor(loss_scale * batch_value(id));
  }
  Factor batch_factor(BatchValueId id) const {
    const Tensor& late = batch->loss_factors;
    const int row = 1 + kMostBatchValues + id.index;
    return late.data != nullptr ? Factor(1, late.rows(row, row + 1)) : Factor(batch_value(id));
  }
  // Whether this forward is part of a training step, not of evaluation or sampling.
  bool has_backward() const { return training && grads != nullptr; }
  // f64 [1], += a loss term's sum over this micro-batch (nn/reports.h). Only if loss_terms has dims.
  Tensor loss_term(LossTermId id) const { return loss_terms.rows(id.index, id.index + 1); }
  // Whether counters are wanted; only then a layer may ask for one.
  bool counts() const { return counters.rank() > 0; }
  Tensor counter(CounterId id) const { return counters.rows(id.first, id.first + id.count); }
  // Only if host_values has dims.
  Tensor host_value(HostValueId id) const { return host_values.rows(id.first, id.first + id.count); }
  double batch_value(BatchValueId id) const { return batch->values.at(static_cast<size_t>(id.index)); }
  Tensor weight(ParamId id) const { return params.weight(id); }
  Tensor grad(ParamId id) const { return grads->grad(id); }
  // Whether an operation that is about to write these gradients must add to them; the first write of a step
  // assigns. Marks them as begun, so a layer asks exactly once for each write. If only one of two is begun,
  // the other is set to zero first.
  bool adds_to(ParamId id, std::optional<ParamId> other = {}) const;
  // The gradient, for operations that can only add to some of its rows; set to zero if it was not begun.
  Tensor grad_from_zero(ParamId id) const {
    if (!adds_to(id)) ops.fill(stream, grad(id), 0.0);
    return grad(id);
  }
  // A copy that keeps everything, outputs too, in another arena.
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
  // Adds parameters to `params`, all marked with `block`, and what the block reports to `reports`. These and `mesh` must
  // outlive the builder.
  // With `sequence_parallel`, activations between the linear layers are cut by rows over the tensor axis
  // (tensor_parallel/regions.h); with one rank on that axis it changes nothing.
  BlockBuilder(ParamList& params, ReportList& reports, const Mesh& mesh, int block, uint64_t seed,
               bool sequence_parallel = false)
      : params_(params),
        reports_(reports),
        mesh_(mesh),
        block_(block),
        seed_(seed),
        sequence_parallel_(sequence_parallel && mesh.size(Axis::Tp) > 1) {}

  // A whole parameter on every rank of the tensor axis. Its gradient is a partial sum over that axis if it is
  // only used with this rank's rows (under sequence parallelism) or, `inside` a region, with this rank's part
  // of each row.
  ParamId replicated(const std::string& name, const Shape& shape, Init init, bool decay, bool inside = false);
  // A parameter cut evenly along `dim` over the tensor axis, into at most `pieces` pieces (0: one per rank).
  // If there are more ranks than pieces, consecutive ranks hold copies of one piece
  // (ShardSpec::tensor_copies), and its gradient is a partial sum over them.
  ParamId sharded(const std::string& name, const Shape& global, int dim, Init init, bool decay,
                  int64_t pieces = 0);
  // Part `part` of `parts` equal parts of a parameter, whose other parts belong to other blocks, cut evenly along its
  // first dim, and further over the tensor axis.
  ParamId sharded_part(const std::string& name, const Shape& global, int part, int parts, Init init,
                       bool decay);
  // A parameter of experts, its first dim, cut evenly over the expert axis, and along its dim `inner` over the
  // tensor axis of experts. Where it is used all tokens of the ranks along these axes have come together, so its
  // gradient is summed over the others alone.
  ParamId of_experts(const std::string& name, const Shape& global, int inner, Init init, bool decay);
  // Numbers that the trainer sets between steps (ParamSpec::counted), whole on every rank, zero at first.
  ParamId counted(const std::string& name, const Shape& shape);
  // A second use of `of` (see ParamSpec::tied_to), named "<name of it>@<use>".
  ParamId tied(ParamId of, const std::string& use);
  SlotId slot() { return {slots_++}; }
  // A loss term, which other blocks may share.
  LossTermId loss_term(const std::string& name) { return reports_.loss_terms.declare(name); }
  // A batch value, which other blocks may share.
  BatchValueId batch_value(const std::string& name) { return reports_.batch_values.declare(name); }
  // f64 and i32 [count] of this block.
  CounterId counter(const std::string& name, int64_t count) {
    return reports_.counters.declare(block_, name, count);
  }
  HostValueId host_value(const std::string& name, int64_t count) {
    return reports_.host_values.declare(block_, name, count);
  }

  int slots() const { return slots_; }
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
  int slots_ = 0;
};

// Dropout for numbers of which each sample of the batch has `each`, from number `first` of the micro-batch
// on; keyed by (sample of the whole run, number), so the same on every mesh.
inline Dropout sample_dropout(const Run& run, double probability, PhiloxKey key, int64_t first,
                              int64_t each) {
  const Batch& batch = *run.batch;
  if (batch.sample.data != nullptr)
    return {probability, key, static_cast<uint64_t>(first), batch.sample, each};
  return {probability, key, static_cast<uint64_t>(batch.first_sample * each + first)};
}

// Dropout for an activation x [R, C] that is slice `row_part` of this rank's rows of the micro-batch: calls
// body(begin, end, how) for each run of rows [begin, end) that is contiguous in the samples; once for all of
// them if samples are not cut.
void for_each_dropout(const Run& run, double probability, PhiloxKey key, int row_part, const Tensor& x,
                      FunctionRef<void(int64_t begin, int64_t end, const Dropout& how)> body);
// y = drop(x) of such an activation; y may be x.
void drop_activation(const Run& run, Tensor y, Tensor x, double probability, PhiloxKey key, int row_part);

class Layer {
 public:
  virtual ~Layer() = default;
  virtual Tensor forward(Run& run, Tensor x, Saved& saved) const = 0;
  virtual Tensor backward_input(Run& run, Tensor dy, Saved& saved) const = 0;
  virtual void backward_weight(Run& run, Saved& saved) const = 0;
  // Whether backward_weight reads weights, because it recomputes tensors that were not kept.
  virtual bool weight_backward_reads_weights() const { return false; }
  virtual Tensor backward(Run& run, Tensor dy, Saved& saved) const {
    const Tensor dx = backward_input(run, dy, saved);
    backward_weight(run, saved);
    return dx;
  }
  // Whether forward adds to gradients of weights when a backward follows.
  virtual bool adds_in_forward() const { return false; }
  // Whether backward_input adds to gradients of weights already, as where a bias is summed on the way.
  virtual bool adds_in_backward_input() const { return false; }
};

}  // namespace trifold
