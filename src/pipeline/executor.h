// Executor: the interpreter of plans. It owns the memory of activations and executes the plan; it makes no
// decisions of its own.
//
// Computation runs in the order of the rank's row on the compute stream. Messages between stages are sent and
// received on two other streams, forward messages over one communicator, backward messages over another;
// adjacent messages of one direction are exchanged together. Only the consumer of a message waits for it.
//
// Memory: each micro-batch in flight on a stage has a *slot* with an arena for the tensors its forward keeps. A pair of
// a forward and a backward (Action::overlaps_next) takes turns: while what one half has sent to other ranks is under
// way, the other one computes (OtherHalf). The forward is on a stack of its own for that (core/fiber.h), and has
// temporaries of its own. Which half computes when follows from the plan and the layers alone, so ranks whose rows and
// blocks are alike start their collectives in the same order. Pairs that are watched, and those in a walk that
// measures, run one after the other.
//
// In a whole backward (B), activation gradients alternate between two arenas: a block's backward reads dy
// from one and leaves dx in the other. An I leaves its gradients in an arena that is held until its W.
// Tensors that a block keeps of a micro-batch and that the plan off-loads are in a kept block (pipeline/offloading.h).
// Tensors received from or sent to another rank are in messages: the output of a stage is not kept once it is sent. A
// dry run of the plan with measuring arenas finds all capacities, so `measure` is exact and `run` allocates no tensor.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "core/fiber.h"
#include "core/function_ref.h"
#include "nn/layer.h"
#include "pipeline/block_graphs.h"
#include "pipeline/device_batches.h"
#include "pipeline/stage_memory.h"
#include "schedule/action.h"

namespace trifold {

struct StageBlock {
  const Layer* layer;
  int slots;      // tensors it saves for one micro-batch
  int index = 0;  // index in the model

  // Whether such an action on the block adds to the gradients of its weights.
  bool adds_to_gradients(ActionKind kind) const {
    return trifold::adds_to_gradients(kind, layer->adds_in_forward(), layer->adds_in_backward_input());
  }
};

// A stage that this rank runs.
struct Stage {
  int index = 0;  // index in the pipeline
  std::vector<StageBlock> blocks;
};

// A rank's place in the pipeline. The communicators are over the pipeline axis; null if it has one rank.
struct PipelinePlace {
  std::vector<Stage> stages;       // of this rank, ascending
  std::vector<int> rank_of_stage;  // pipeline rank of every stage
  int64_t width = 0;               // C of the activations [R, C] between stages
  int row_parts = 1;               // R = samples * positions / row_parts
  std::vector<int> row_statistics =
      {};  // [stage] numbers for each of samples * positions rows that travel with its
           // output (nn/row_statistics.h); empty: none
  Communicator* forward = nullptr;   // for activations
  Communicator* backward = nullptr;  // for their gradients
  Stream* forward_stream = nullptr;
  Stream* backward_stream = nullptr;
  // For OFFLOAD and FETCH: whether activations leave a device, otherwise a folder for the file; and the stream that
  // moves; null if the plan has none.
  bool offloads_device = false;
  std::string offload_folder = {};
  Stream* offload_stream = nullptr;
  Stream* exchange_stream =
      nullptr;           // for what the halves of pairs have under way; null if the plan has no pairs
  RankPlan forward_row;  // the row of `evaluate`; empty: forward_row_of the other members
};

// The row that takes one micro-batch forward through the stages of this rank.
RankPlan forward_row_of(const PipelinePlace& place);

// Observes every action and block of a step while it is enqueued; set as StepInputs::watch.
class StepWatch : public TensorWatch {
 public:
  // Forwards every call to `inner`, if there is one, which must outlive it.
  explicit StepWatch(StepWatch* inner = nullptr) : inner_(inner) {}
  // The next action, or the first of several messages that are exchanged together.
  virtual void before(const Action& action) {
    if (inner_ != nullptr) inner_->before(action);
  }
  // Block `block` of the model is about to do its part of `action` on this batch, with these weights, which
  // are available as of now on `stream`. The layers' tensors until `end` belong to it.
  virtual void begin(const Action& action, int block, const Batch& batch, const ParamSource& weights,
                     Stream& stream) {
    if (inner_ != nullptr) inner_->begin(action, block, batch, weights, stream);
  }
  virtual void end(Stream& stream) {
    if (inner_ != nullptr) inner_->end(stream);
  }
  void see(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) override {
    if (inner_ != nullptr) inner_->see(layer, what, tensor, stream);
  }
  // The action, or all messages that are exchanged together, have been enqueued.
  virtual void after(const Action& action) {
    if (inner_ != nullptr) inner_->after(action);
  }

 private:
  StepWatch* inner_;
};

// The inputs common to all micro-batches of a step.
struct StepInputs {
  uint64_t seed = 0;      // of dropout
  double loss_scale = 1;  // factor of the loss before backward
  bool training = true;
  // Returns the batch of micro-batch `micro`. Called once per micro-batch, when its data is first needed; the
  // data must stay valid until its last backward on this rank is done.
  FunctionRef<Batch(int micro)> batch;
  // Executes the actions that concern no block, weight or message: Step, and those of tables.
  FunctionRef<void(const Action&)> others;
  // Micro-batches per global batch if the plan covers several; 0: all belong to one.
  int micros_per_batch = 0;
  StepWatch* watch = nullptr;
};

// The weighted sum of the losses of a rank's micro-batches, and the sum of the weights; zero on ranks without
// the last stage. Also the loss terms of its own blocks (nn/reports.h). Its layout is that of f64 [kLossNumbers].
struct LossSums {
  double loss = 0;
  double weight = 0;
  std::array<double, kMostLossTerms> terms = {};

  double term(LossTermId id) const { return terms.at(static_cast<size_t>(id.index)); }
  // No number if nothing counts.
  double mean_loss() const { return weight > 0 ? loss / weight : std::numeric_limits<double>::quiet_NaN(); }
};
constexpr int64_t kLossNumbers = 2 + kMostLossTerms;
static_assert(sizeof(LossSums) == kLossNumbers * sizeof(double));

class Executor {
 public:
  // References must outlive the executor. `grads` may be null if the plan has no backward. All computation
  // runs on `stream`; `side` is for collectives that overlap with it (see Run).
  Executor(PipelinePlace place, const Mesh& mesh, const OpTable& ops, ParamSource& params, GradSink* grads,
           Stream& stream, Stream& side, DType dtype, const ActivationMemory& memory);

  // Waits for messages and collectives in flight: they use this memory. After an error they only end once
  // Communicator::abort has reached the other ranks.
  ~Executor();
  Executor(Executor&&) = default;

  // From now on the work that blocks enqueue in training steps is captured and replayed
  // (pipeline/block_graphs.h). The executor must compute on a device, in a mesh without tensor ranks;
  // `params` must outlive it.
  void capture_blocks(const ParamList& params);
  // From now on blocks have memory for the counters of their model, zero when a call of `run` begins, and for its host
  // values (nn/reports.h).
  void collect(const ReportList& reports);
  // This rank's counters, f64 [elements of all]; without dims if the model has none. Valid once the compute stream has
  // passed the forwards.
  Tensor counters() const { return counters_; }
  // The host values, i32 [elements of all], zero at first, to be written between calls of `run`; without dims if the
  // model has none.
  Tensor host_values() const { return host_values_; }
  // What could not be captured, and why; empty if everything could, or capturing was not requested.
  const std::string& capture_note() const;
  bool capture_refused() const { return graphs_ && graphs_->refused(); }  // BlockGraphs::refused

  // The memory that a rank's row needs for micro-batches like `batch`, whose tensors need no memory: walks
  // the row without computing or communicating.
  static ActivationMemory measure(const PipelinePlace& place, const ParamList& params, const Mesh& mesh,
                                  const RankPlan& row, const Batch& batch, DType dtype);

  // The same for `evaluate`.
  static ActivationMemory measure_forward(const PipelinePlace& place, const ParamList& params,
                                          const Mesh& mesh, const Batch& batch, DType dtype);

  // The most bytes of kept blocks in memory at once so far.
  size_t kept_blocks_in_memory() const { return offloading_.peak(); }

  // Returns the sums of each global batch of the plan, valid until the next call. From the second call with a
  // row on, nothing is allocated.
  std::span<const LossSums> run(const RankPlan& row, const StepInputs& inputs);
  // The same, but returns as soon as everything is enqueued. `losses` are the sums that `run` returns, f64
  // [global batches, kLossNumbers], for the host to read once the compute stream has passed the forwards.
  void enqueue(const RankPlan& row, const StepInputs& inputs);
  Tensor losses() const { return losses_.tensor(DType::F64, {loss_rows_, kLossNumbers}); }
  // A warm-up: runs this row, and a forward, on this rank alone, so that libraries are loaded, algorithms
  // chosen and, in a second call, graphs of blocks captured. No messages are sent, no gradients reduced, no
  // weights updated; collectives within blocks, and those that gather weights, are executed. The gradients
  // are undefined afterwards.
  void rehearse(const RankPlan& row, const StepInputs& inputs);
  // Forward only, without dropout, through all stages; `watch`, if given, observes them. `others` as in
  // StepInputs. Collective over the pipeline axis.
  static constexpr auto kNoOthers = [](const Action&) {};
  LossSums evaluate(const Batch& batch, StepWatch* watch = nullptr,
                    FunctionRef<void(const Action&)> others = kNoOthers);

 private:
  struct StageState {
    Stage stage;
    StageSlots slots;
  };
  // The data of a micro-batch, until all stages of this rank are done with it.
  struct BatchUse {
    int micro = 0;
    Batch batch;
    int64_t number = 0;   // its index in the order of requests
    int stages_done = 0;  // of this rank
  };

  Executor(PipelinePlace place, const Mesh& mesh, const OpTable& ops, ParamSource& params, GradSink* grads,
           Stream& stream, Stream& side, DType dtype);
  template <class Walk>
  static ActivationMemory measure_walk(const PipelinePlace& place, const ParamList& params, const Mesh& mesh,
                                       DType dtype, Walk walk);
  ActivationMemory measured() const;
  StageState& state_of(const Action& action);
  bool is_local(int stage) const;
  bool is_last(const Stage& stage) const;
  std::vector<BatchUse>::iterator use_of(int micro);
  // Valid until the next call.
  const Batch& batch_of(int micro, const StepInputs& inputs);
  // The shape of a stage's output, and of its gradient.
  Shape boundary(const Batch& batch, int stage) const;
  // An action as half of a pair, or by itself.
  struct Half {
    OtherHalf* other = nullptr;
    Arena* beside = nullptr;  // the forward's memory; null: that of actions by themselves
  };
  // Does `work(run)`, the part of an action for block `index` of the stage, and shows it to the watch.
  // `through` points to the input and receives the output; null if nothing flows through.
  struct BlockUse {
    size_t index;
    Arena& flow;
    Tensor* through;
    Half half = {};
    Arena* outgoing = nullptr;        // for the block's output; null: that is kept
    KeptBlock* kept_block = nullptr;  // for what the forward keeps; null: the slot's own memory
  };
  Run make_run(const Action& action, Slot& slot, const BlockUse& use, const StepInputs& inputs);
  template <class Work>
  void compute(const Action& action, const StageState& state, Slot& slot, const BlockUse& use,
               const StepInputs& inputs, Work work);
  void forward_block(const Action& action, StageState& state, Slot& slot, size_t index,
                     const StepInputs& inputs, const Half& half);

  // Called before a block of the stage is computed: opens its gradients if the block will add to them.
  bool opens_gradients(ActionKind kind, const StageState& state, size_t index,
                       const StepInputs& inputs) const;
  void open_gradients(ActionKind kind, const StageState& state, size_t index, const StepInputs& inputs);
  int model_block(const Action& action);
  void execute(const Action& action, const StepInputs& inputs);
  void compute(const Action& action, const StepInputs& inputs, const Half& half);
  void execute_pair(const Action& first, const Action& second, const StepInputs& inputs);
  void forward(const Action& action, const StepInputs& inputs, const Half& half);
  void whole_backward(const Action& action, const StepInputs& inputs, const Half& half);
  void input_backward(const Action& action, const StepInputs& inputs, const Half& half);
  void weight_backward(const Action& action, const StepInputs& inputs, const Half& half);
  Tensor input_of(StageState& state, int micro);
  void find_kept_blocks(const RankPlan& row);
  void move_activations(const Action& action);
  // Before and after a backward of block `index` of the stage: what it reads is in memory; what only it and blocks
  // behind it read is released.
  void await_activations(Slot& slot, int index);
  void release_activations(Slot& slot, int index);
  void receive_gradient(StageState& state, Slot& slot, int micro);
  void pass_gradient(StageState& state, int micro, Tensor dx);
  Slot* slot_of(int stage, int micro);
  void finish(StageState& state, Slot& slot);
  void release(StageState& state, Slot& slot);
  void release_forward_only(StageState& state, Slot& slot);

  void exchange(std::span<const Action> batch, const StepInputs& inputs);

  void reset(const RankPlan& row, const StepInputs& inputs);
  std::span<const LossSums> take_losses();

  PipelinePlace place_;
  const Mesh& mesh_;
  const OpTable& ops_;
  ParamSource& params_;
  GradSink* grads_;
  Stream& stream_;
  Stream& side_;
  DType dtype_;
  bool measuring_ = false;
  bool rehearsing_ = false;
  bool keeps_for_backward_ = true;
  std::vector<StageState> stages_;
  Messages messages_;
  Offloading offloading_;     // after the kept blocks, whose moves it awaits
  std::vector<Arena> flows_;  // two; the second may be empty
  Arena scratch_;
  Arena beside_;                  // scratch and flow of a forward beside a backward
  std::unique_ptr<Fiber> fiber_;  // in which such forwards run; made for the first
  Buffer losses_;                 // f64 [global batches, kLossNumbers], as in LossSums
  int64_t loss_rows_ = 1;
  Buffer counter_memory_, host_value_memory_;
  Tensor counters_, host_values_;  // in them
  RankPlan forward_row_;
  std::vector<LossSums> sums_;  // of the last call
  std::vector<BatchUse> batches_;
  std::unique_ptr<DeviceBatches> device_batches_;  // null if the host computes
  std::unique_ptr<BlockGraphs> graphs_;            // null unless requested
  std::vector<int> micro_order_;
  int64_t batches_held_ = 1;  // the maximum at a time
  Action open_{};             // a B that has not reached block 0 yet: its gradients are in flows_
  bool is_open_ = false;
};

}  // namespace trifold
