// Executor: the one interpreter of plans. It owns the memory of activations and obeys the plan; it takes no
// decisions.
//
// Memory: each micro-batch in flight has a *slot* with an arena for what its forward keeps. Activation
// gradients flow through two arenas in turn: a block's backward reads dy from one and leaves dx in the other.
// A dry run of the plan with measuring arenas tells the capacities, so `measure` is exact and `run` allocates
// no tensor.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/function_ref.h"
#include "nn/layer.h"
#include "pipeline/action.h"

namespace trifold {

// A view of the blocks one rank runs, first to last.
struct StageBlock {
  const Layer* layer;
  int slots;
};

// Bytes of activation memory a plan needs on one rank.
struct ActivationMemory {
  size_t keep = 0;     // of one slot
  size_t flow = 0;     // of one of the two gradient arenas
  size_t scratch = 0;  // temporaries
  int slots = 0;       // micro-batches in flight at once
  size_t total() const { return keep * static_cast<size_t>(slots) + 2 * flow + scratch; }
};

// The same for every micro-batch of a step.
struct StepInputs {
  uint64_t seed = 0;      // of dropout
  double loss_scale = 1;  // factor of the loss before backward
  bool training = true;
  // The batch of micro-batch `micro`; called at its forward, must stay valid until its backward is done.
  FunctionRef<Batch(int micro)> batch;
  FunctionRef<void()> step;  // what Step does
};

// Weighted sum of the losses of a rank's micro-batches, and the sum of the weights.
struct LossSums {
  double loss = 0;
  double weight = 0;
};

class Executor {
 public:
  // References must outlive the executor. `grads` may be null where the plan has no backward. `stream` is
  // where all computation goes, `side` the stream for collectives that are hidden behind it (see Run).
  Executor(std::vector<StageBlock> blocks, const Mesh& mesh, const OpTable& ops, const ParamSource& params,
           GradSink* grads, Stream& stream, Stream& side, DType dtype, const ActivationMemory& memory);

  // The memory a plan will need for micro-batches of the given size: walks the plan without computing.
  static ActivationMemory measure(const std::vector<StageBlock>& blocks, const ParamList& params,
                                  const Mesh& mesh, const RankPlan& plan, int64_t micro_batch_size,
                                  int64_t seq_length, DType dtype);

  LossSums run(const RankPlan& plan, const StepInputs& inputs);
  // Forward only, without dropout.
  LossSums evaluate(const Batch& batch);

 private:
  struct Slot {
    Arena keep;
    std::vector<Saved> saved;  // a block each
    Batch batch;
    Tensor gradient;  // of the output of the block whose backward comes next
    int micro = Action::kAll;
  };

  Executor(std::vector<StageBlock> blocks, const Mesh& mesh, const OpTable& ops, const ParamSource& params,
           GradSink* grads, Stream& stream, Stream& side, DType dtype);
  Run make_run(Slot& slot, Arena& flow, const StepInputs& inputs);
  Slot& slot_of(int micro);
  Slot& free_slot();
  void forward(int micro, const StepInputs& inputs);
  void backward(const Action& action, const StepInputs& inputs);
  void execute(const Action& action, const StepInputs& inputs);
  void clear_losses();
  LossSums take_losses();

  std::vector<StageBlock> blocks_;
  const Mesh& mesh_;
  const OpTable& ops_;
  const ParamSource& params_;
  GradSink* grads_;
  Stream& stream_;
  Stream& side_;
  DType dtype_;
  bool measuring_ = false;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<Arena> flows_;  // two
  Arena scratch_;
  Buffer losses_;  // f64 [2]: loss sum, weight sum
};

}  // namespace trifold
