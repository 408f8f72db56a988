// Executor: interprets a plan. It owns the memory of activations and executes the rank's row; it makes no decisions.
//
// Computation runs in the order of the row on the compute stream. Messages between stages are sent and received on two
// other streams, forward and backward messages over different communicators; adjacent messages of one direction are
// exchanged together. Only the consumer of a message waits for it.
//
// Pairs. The halves of a pair, a forward and a backward (Action::overlaps_next), take turns: one computes while the
// other's messages are in flight (OtherHalf). The forward therefore has its own stack (core/fiber.h) and its own
// temporaries. The order of turns depends only on the plan and the layers, so ranks with the same rows and blocks start
// their collectives in the same order. Under a watch, and in a dry run, the halves run one after the other.
//
// Memory. Each micro-batch in flight on a stage has a *slot* with an arena for the tensors that its forward keeps. In a
// whole backward (B), gradients of activations alternate between two arenas: a block's backward reads dy from one and
// writes dx to the other. An I writes its gradients to an arena that is held until its W. A block without a backward
// keeps nothing but its output, and that only until the next block without a backward has read it. Tensors that the plan
// off-loads are in kept blocks (pipeline/offloading.h). Tensors received from or sent to another rank are in messages,
// so a stage's output is not kept once it is sent. A dry run of the plan with measuring arenas finds all capacities, so
// `measure` is exact and `run` allocates no tensor.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "core/fiber.h"
#include "core/function_ref.h"
#include "core/layer_type.h"
#include "nn/boundary.h"
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
  BlockBackward backward = BlockBackward::All;

  // Whether an action of this kind adds to the gradients of the block's weights.
  bool adds_to_gradients(ActionKind kind) const {
    return backward != BlockBackward::None &&
           trifold::adds_to_gradients(kind, layer->adds_in_forward(), layer->adds_in_backward_input());
  }
};

// A stage that this rank runs.
struct Stage {
  int index = 0;  // index in the pipeline
  std::vector<StageBlock> blocks;

  // Whether the stage has a backward, and whether it returns the gradient of its input.
  bool has_backward() const { return blocks.back().backward != BlockBackward::None; }
  bool returns_gradient() const { return blocks.front().backward == BlockBackward::All; }
};

// A rank's part of the pipeline. The communicators are over the pipeline axis; null if it has one rank.
struct PipelineRank {
  std::vector<Stage> stages;         // this rank's, ascending
  std::vector<int> rank_of_stage;    // pipeline rank of every stage
  std::vector<Boundary> outputs;     // [stage] its output; may be empty if all stages are on this rank
  Communicator* forward = nullptr;   // for activations
  Communicator* backward = nullptr;  // for their gradients
  Stream* forward_stream = nullptr;
  Stream* backward_stream = nullptr;
  // For OFFLOAD and FETCH: whether activations are moved from a device to host memory, or else the folder of the file;
  // and the stream of the moves, null if the plan has none.
  bool offloads_device = false;
  std::string offload_folder = {};
  Stream* offload_stream = nullptr;
  Stream* exchange_stream = nullptr;  // for collectives of pairs; null if the plan has no pairs
  RankPlan forward_row;               // the row of `evaluate`; empty: forward_row_of the other members
};

// The row that runs the forward of one micro-batch through this rank's stages.
RankPlan forward_row_of(const PipelineRank& pipeline);

// Observes every action and block of a step while it is enqueued; set as StepInputs::watch.
class StepWatch : public TensorWatch {
 public:
  // Forwards every call to `inner`, if there is one, which must outlive it.
  explicit StepWatch(StepWatch* inner = nullptr) : inner_(inner) {}
  // Called before an action; of several messages that are exchanged together, before the first.
  virtual void before(const Action& action) {
    if (inner_ != nullptr) inner_->before(action);
  }
  // Called before block `block` of the model computes its part of `action` on this batch, with these weights, which are
  // available to later work on `stream`. Calls of `see` until `end` are for this block.
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
  // Called when the action, or all messages that are exchanged together, have been enqueued.
  virtual void after(const Action& action) {
    if (inner_ != nullptr) inner_->after(action);
  }

 private:
  StepWatch* inner_;
};

// The inputs common to all micro-batches of a step.
struct StepInputs {
  uint64_t seed = 0;      // for dropout
  double loss_scale = 1;  // factor of the loss before backward
  bool training = true;
  // Returns the batch of micro-batch `micro`. Called once for each micro-batch, when its data is first needed; the data
  // must stay valid until its last backward on this rank is done.
  FunctionRef<Batch(int micro)> batch;
  // Executes actions that concern no block, weight or message: Step, and the actions of tables.
  FunctionRef<void(const Action&)> others;
  // Micro-batches per global batch if the plan covers several; 0: all belong to one.
  int micros_per_batch = 0;
  StepWatch* watch = nullptr;
};

// The weighted sum of the losses of a rank's micro-batches and the sum of the weights, zero on ranks without the last
// stage; and the loss terms of the rank's blocks (nn/reports.h). It has the memory layout of f64 [kLossNumbers].
struct LossSums {
  double loss = 0;
  double weight = 0;
  std::array<double, kMostLossTerms> terms = {};

  double term(LossTermId id) const { return terms.at(static_cast<size_t>(id.index)); }
  // NaN if all weights are 0.
  double mean_loss() const { return weight > 0 ? loss / weight : std::numeric_limits<double>::quiet_NaN(); }
};
constexpr int64_t kLossNumbers = 2 + kMostLossTerms;
static_assert(sizeof(LossSums) == kLossNumbers * sizeof(double));

class Executor {
 public:
  // References must outlive the executor. `grads` may be null if the plan has no backward. All computation runs on
  // `stream`; `side` is for collectives that overlap with it (Run::side).
  Executor(PipelineRank pipeline, const Mesh& mesh, const OpTable& ops, ParamSource& params, GradSink* grads,
           Stream& stream, Stream& side, LayerType type, const ActivationMemory& memory);

  // Waits for messages and collectives in flight, which use this memory. After an error they only end once
  // Communicator::abort has reached the other ranks.
  ~Executor();
  Executor(Executor&&) = default;

  // Enables graphs: the work that blocks enqueue in training steps is captured and replayed (pipeline/block_graphs.h).
  // The executor must compute on a device, in a mesh without tensor ranks; `params` must outlive it.
  void capture_blocks(const ParamList& params);
  // Provides memory for the model's counters, which are set to zero when a call of `run` begins, and for its host
  // values (nn/reports.h).
  void collect(const ReportList& reports);
  // This rank's counters, f64 [elements of all]; without dims if the model has none. Valid once the forwards on the
  // compute stream have completed.
  Tensor counters() const { return counters_; }
  // The host values, i32 [elements of all], zero at first, which the caller may write between calls of `run`; without
  // dims if the model has none.
  Tensor host_values() const { return host_values_; }
  // BlockGraphs::note and BlockGraphs::refused; empty and false if graphs are not enabled.
  const std::string& capture_note() const;
  bool capture_refused() const { return graphs_ && graphs_->refused(); }

  // The memory that a rank's row needs for micro-batches with the shapes of `batch`, whose tensors need no memory. It
  // is found by a dry run, which neither computes nor communicates.
  static ActivationMemory measure(const PipelineRank& pipeline, const ParamList& params, const Mesh& mesh,
                                  const RankPlan& row, const Batch& batch, LayerType type);

  // The memory that `evaluate` needs, found in the same way; of an executor that collects `reports`, if they are given.
  static ActivationMemory measure_forward(const PipelineRank& pipeline, const ParamList& params,
                                          const Mesh& mesh, const Batch& batch, LayerType type,
                                          const ReportList* reports = nullptr);

  // Offloading::peak.
  size_t kept_blocks_in_memory() const { return offloading_.peak(); }
  // The bytes of activation memory that it has allocated, and of kept blocks the most that were in memory at once.
  size_t allocated() const;

  // Executes the row. Returns the sums of each global batch of the plan, valid until the next call. From the second
  // call with a row on, it allocates nothing.
  std::span<const LossSums> run(const RankPlan& row, const StepInputs& inputs);
  // Enqueues all work of the row and returns. `losses` are the sums that `run` returns, f64 [global batches,
  // kLossNumbers], which the host may read once the forwards on the compute stream have completed.
  void enqueue(const RankPlan& row, const StepInputs& inputs);
  Tensor losses() const { return losses_.tensor(DType::F64, {loss_rows_, kLossNumbers}); }
  // Warm-up: runs this row, and a forward, on this rank alone, so that libraries are loaded, algorithms are chosen and,
  // in a second call, graphs are captured. It sends no messages, reduces no gradients and updates no weights, but
  // executes collectives within blocks and collectives that gather weights. Gradients are undefined afterwards.
  void rehearse(const RankPlan& row, const StepInputs& inputs);
  // Runs the forward of a batch through all stages, without dropout; `watch`, if any, observes them. `others` as in
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
    int64_t number = 0;   // index in the order of requests
    int stages_done = 0;  // stages of this rank that are done with it
  };

  Executor(PipelineRank pipeline, const Mesh& mesh, const OpTable& ops, ParamSource& params, GradSink* grads,
           Stream& stream, Stream& side, LayerType type);
  template <class Walk>
  static ActivationMemory measure_walk(const PipelineRank& pipeline, const ParamList& params,
                                       const Mesh& mesh, LayerType type, Walk walk);
  ActivationMemory measured() const;
  StageState& state_of(const Action& action);
  bool is_local(int stage) const;
  bool is_last(const Stage& stage) const;
  std::vector<BatchUse>::iterator use_of(int micro);
  // The batch of a micro-batch, valid until the next call.
  const Batch& batch_of(int micro, const StepInputs& inputs);
  // The shape of a stage's output, and of its gradient.
  Shape boundary(const Batch& batch, int stage) const;
  // The other half and the memory of an action that is half of a pair.
  struct Half {
    OtherHalf* other = nullptr;     // null: the action is not half of a pair
    Arena* pair_scratch = nullptr;  // scratch and flow of the forward of a pair; null: scratch_ and flows_
  };
  // How an action uses a block. `through` points to the block's input and receives its output; null if it has neither.
  struct BlockUse {
    size_t index;  // in the stage
    Arena& flow;
    Tensor* through;
    Half half = {};
    Arena* outgoing = nullptr;  // for the block's output; null: it is kept
    KeptBlock* kept_block =
        nullptr;  // for tensors that the forward keeps; null: they are in the slot's arena
    bool wants_dx = true;
  };
  // In the backward of a block that has one.
  static BlockUse backward_use(const StageBlock& block, size_t index, Arena& flow, Tensor* through,
                               const Half& half);
  Run make_run(const Action& action, Slot& slot, const BlockUse& use, const StepInputs& inputs);
  // Calls work(run), a block's part of an action, and shows it to the watch.
  template <class Work>
  void compute(const Action& action, const StageState& state, Slot& slot, const BlockUse& use,
               const StepInputs& inputs, Work work);
  void forward_block(const Action& action, StageState& state, Slot& slot, size_t index,
                     const StepInputs& inputs, const Half& half);
  // The forward of a block without a backward: `run` computes with temporary memory.
  static Tensor pass_through(Run& run, const Layer& layer, Tensor x, Saved& saved, Arena& output);

  // Called before a block of the stage is computed: opens its gradients if the block adds to them.
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
  // Whether what a stage computes of a micro-batch is kept for its backward.
  bool keeps(const StageState& state) const { return keeps_for_backward_ && state.stage.has_backward(); }
  void find_kept_blocks(const RankPlan& row);
  void move_activations(const Action& action);
  // Called before and after a backward of block `index` of the stage: awaits the kept blocks that it reads, and
  // releases the kept blocks that only it and later blocks read.
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

  PipelineRank pipeline_;
  // The flight recorder of a real step; null in a dry run.
  FlightRecorder* recorder() const { return measuring_ ? nullptr : mesh_.world().recorder(); }

  const Mesh& mesh_;
  const OpTable& ops_;
  ParamSource& params_;
  GradSink* grads_;
  Stream& stream_;
  Stream& side_;
  LayerType type_;
  bool measuring_ = false;
  bool rehearsing_ = false;
  bool keeps_for_backward_ = true;
  std::vector<StageState> stages_;
  Messages messages_;
  Offloading offloading_;     // declared after the kept blocks: its destructor waits for their moves
  std::vector<Arena> flows_;  // two; the second may be empty
  Arena scratch_;
  Arena pair_scratch_;            // scratch and flow of the forward of a pair
  std::unique_ptr<Fiber> fiber_;  // runs the forwards of pairs; made for the first one
  Buffer losses_;                 // f64 [global batches, kLossNumbers], as in LossSums
  int64_t loss_rows_ = 1;
  Buffer counter_memory_, host_value_memory_;
  Tensor counters_, host_values_;  // views of these
  RankPlan forward_row_;
  std::vector<LossSums> sums_;  // results of the last call
  std::vector<BatchUse> batches_;
  std::unique_ptr<DeviceBatches> device_batches_;  // null if the host computes
  std::unique_ptr<BlockGraphs> graphs_;            // null unless requested
  std::vector<int> micro_order_;
  int64_t batches_held_ = 1;  // the most at the same time
  Action open_{};             // a B that has not reached block 0 yet: its gradients are in flows_
  bool is_open_ = false;
};

}  // namespace trifold
