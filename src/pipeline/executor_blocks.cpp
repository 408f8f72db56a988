// Executor: the work of blocks in F, B, I and W, their inputs and their outputs.
#include <algorithm>

#include "pipeline/executor.h"

namespace trifold {

Run Executor::make_run(const Action& action, Slot& slot, const BlockUse& use, const StepInputs& inputs) {
  const int64_t batch = inputs.micros_per_batch == 0 ? 0 : action.micro / inputs.micros_per_batch;
  const Tensor losses = this->losses().rows(batch, batch + 1).reshape({kLossNumbers});
  Run run{stream_,
          side_,
          ops_,
          mesh_,
          measuring_ ? params_ : params_.at_version(action.version),
          grads_,
          use.kept_block != nullptr ? &use.kept_block->memory() : &slot.keep,
          &use.flow,
          use.half.pair_scratch != nullptr ? *use.half.pair_scratch : scratch_,
          &slot.batch,
          type_.dtype,
          inputs.training,
          inputs.seed,
          inputs.loss_scale,
          losses.rows(0, 1),
          losses.rows(1, 2)};
  run.watch = inputs.watch;
  run.narrow = type_.narrow;
  run.outgoing = use.outgoing;
  run.loss_terms = losses.rows(2, kLossNumbers);
  run.counters = counters_;
  run.host_values = host_values_;
  run.other_half = use.half.other;
  run.wants_dx = use.wants_dx;
  return run;
}

template <class Work>
void Executor::compute(const Action& action, const StageState& state, Slot& slot, const BlockUse& use,
                       const StepInputs& inputs, Work work) {
  const StageBlock& block = state.stage.blocks[use.index];
  Run run = make_run(action, slot, use, inputs);
  if (graphs_ && inputs.training && inputs.watch == nullptr) {
    const BlockWork of_block{action.kind,
                             block.index,
                             run,
                             use.through,
                             slot.saved[use.index],
                             action.kind != ActionKind::W,
                             opens_gradients(action.kind, state, use.index, inputs)};
    return graphs_->run(of_block, [&] { work(run); });
  }
  if (inputs.watch != nullptr) inputs.watch->begin(action, block.index, slot.batch, run.params, stream_);
  work(run);
  if (inputs.watch != nullptr) inputs.watch->end(stream_);
}

// The output of the previous stage: received, or still in its slot if that stage is on this rank too.
Tensor Executor::input_of(StageState& state, int micro) {
  const int stage = state.stage.index;
  if (stage == 0) return {};
  if (is_local(stage - 1)) return state_of({ActionKind::F, stage - 1}).slots.of(micro).output;
  Message* message = messages_.find(Message::Role::Input, stage, micro);
  check(message != nullptr, "its input was not received");
  stream_.wait(message->ready);
  return message->tensor;
}

bool Executor::opens_gradients(ActionKind kind, const StageState& state, size_t index,
                               const StepInputs& inputs) const {
  return grads_ != nullptr && inputs.training && state.stage.blocks[index].adds_to_gradients(kind);
}

void Executor::open_gradients(ActionKind kind, const StageState& state, size_t index,
                              const StepInputs& inputs) {
  if (opens_gradients(kind, state, index, inputs)) grads_->open(state.stage.blocks[index].index, stream_);
}

void Executor::forward(const Action& action, const StepInputs& inputs, const Half& half) {
  StageState& state = state_of(action);
  const int count = static_cast<int>(state.stage.blocks.size());
  const int from = action.block == Action::kAll ? 0 : action.block;
  const int to = action.block == Action::kAll ? count : action.block + 1;
  if (from == 0) {
    const Tensor x = input_of(state, action.micro);
    Slot& taken = state.slots.take(action.micro, stream_);
    taken.batch = batch_of(action.micro, inputs);
    taken.output = x;
  }
  Slot& slot = state.slots.of(action.micro);
  if (half.pair_scratch == nullptr && !is_open_)
    flows_[0].reset();  // discards the gradients of the last backward
  for (int index = from; index < to; ++index)
    forward_block(action, state, slot, static_cast<size_t>(index), inputs, half);
  if (to < count) return;
  if (!keeps_for_backward_)
    release_forward_only(state, slot);
  else if (!state.stage.has_backward() && is_local(state.stage.index + 1))
    slot.finished = true;  // the next stage's backward may read the output, and then releases it
}

// Nothing but the output outlives the block, and its input need not either, so the output takes the place of the input
// of the same memory.
Tensor Executor::pass_through(Run& run, const Layer& layer, Tensor x, Saved& saved, Arena& output) {
  const Arena::Mark mark = run.scratch.mark();
  Run passing = run.keeping_in(run.scratch);
  const Tensor y = layer.forward(passing, x, saved);
  output.reset();
  const Tensor kept = output.take(y.dtype, y.shape);
  run.ops.copy(run.stream, kept, y);
  run.scratch.release(mark);
  saved.clear();
  return kept;
}

// If another rank has the next stage, a stage's output is written to a message and sent from there. If the block keeps
// its output anyway, the message is not needed.
void Executor::forward_block(const Action& action, StageState& state, Slot& slot, size_t index,
                             const StepInputs& inputs, const Half& half) {
  const StageBlock& block = state.stage.blocks.at(index);
  check(slot.forwarded == static_cast<int>(index), "the blocks before it have not run their forward");
  ++slot.forwarded;
  params_.enter(block.index, stream_);
  open_gradients(action.kind, state, index, inputs);
  if (slot.saved.size() == index) slot.saved.emplace_back(block.slots);
  Saved& saved = slot.saved[index];
  saved.clear();
  const int stage = state.stage.index;
  const bool leaves = index + 1 == state.stage.blocks.size() && !is_last(state.stage) && !is_local(stage + 1);
  Message* message = nullptr;
  if (leaves) {
    message = &messages_.take(Message::Role::Output, stage, action.micro, type_.dtype,
                              boundary(slot.batch, stage), stream_);
    message->memory.reset();  // the block allocates from it
  }
  KeptBlock* kept_block = slot.kept_block(static_cast<int>(index));
  const bool passes = block.backward == BlockBackward::None && kept_block == nullptr;
  if (kept_block != nullptr) offloading_.begin(*kept_block, stream_);
  compute(action, state, slot,
          {index, half.pair_scratch != nullptr ? *half.pair_scratch : flows_[0], &slot.output, half,
           leaves ? &message->memory : nullptr, kept_block},
          inputs, [&](Run& run) {
            slot.output = passes ? pass_through(run, *block.layer, slot.output, saved,
                                                leaves ? message->memory : slot.keep)
                                 : block.layer->forward(run, slot.output, saved);
          });
  if (kept_block != nullptr) offloading_.filled(*kept_block);
  if (!keeps_for_backward_) release_activations(slot, static_cast<int>(index) - 1);
  if (leaves && message->memory.mark() == 0) messages_.release(*message);
}

// Without a backward, a slot is released as soon as the next stage has its output.
void Executor::release_forward_only(StageState& state, Slot& slot) {
  const int stage = state.stage.index;
  if (stage > 0 && is_local(stage - 1)) {
    StageState& before = state_of({ActionKind::F, stage - 1});
    finish(before, before.slots.of(slot.micro));
  }
  if (is_last(state.stage)) finish(state, slot);
}

// The slot of the micro-batch on another stage; null if the stage is not on this rank or the micro-batch is not in
// flight.
Slot* Executor::slot_of(int stage, int micro) {
  return is_local(stage) ? state_of({ActionKind::F, stage}).slots.find(micro) : nullptr;
}

// Ends the micro-batch on the stage. If the next stage is on this rank and still has a W, which reads its input in this
// slot, the slot stays until then.
void Executor::finish(StageState& state, Slot& slot) {
  const int stage = state.stage.index;
  const int micro = slot.micro;
  slot.finished = true;
  if (keeps_for_backward_ && slot_of(stage + 1, micro) != nullptr) return;
  release(state, slot);
  if (Slot* before = slot_of(stage - 1, micro); before != nullptr && before->finished)
    finish(state_of({ActionKind::F, stage - 1}), *before);
}

// Releases the slot of a micro-batch, its messages and, after the last stage of this rank, its data.
void Executor::release(StageState& state, Slot& slot) {
  for (Message::Role role : {Message::Role::Input, Message::Role::Gradient})
    if (Message* message = messages_.find(role, state.stage.index, slot.micro))
      messages_.release(*message, stream_.record());
  const auto use = use_of(slot.micro);
  if (use != batches_.end() && ++use->stages_done == static_cast<int>(stages_.size())) {
    batches_held_ = std::max(batches_held_, static_cast<int64_t>(micro_order_.size()) - use->number);
    if (device_batches_) device_batches_->release(use->number);
    batches_.erase(use);
  }
  for (size_t block = 0; block < slot.kept_blocks.size(); ++block)
    release_activations(slot, static_cast<int>(block));
  state.slots.release(slot);
}

// Finds in the row which blocks' activations are off-loaded, for a measuring executor.
void Executor::find_kept_blocks(const RankPlan& row) {
  for (const Action& action : row)
    if (action.kind == ActionKind::Offload) state_of(action).slots.add_kept_block(action.block);
}

void Executor::move_activations(const Action& action) {
  Slot& slot = state_of(action).slots.of(action.micro);
  KeptBlock* kept_block = slot.kept_block(action.block);
  check(kept_block != nullptr, "block {} has no memory for off-loaded activations", action.block);
  const Moved moved = action.kind == ActionKind::Offload ? offloading_.offload(*kept_block, stream_)
                                                         : offloading_.fetch(*kept_block);
  // Tensors in the kept block: its block's, and the input of the next block.
  for (Saved& saved : slot.saved)
    for (Tensor& tensor : saved.tensors()) moved.apply(tensor);
}

// A block's backward reads the tensors that it kept, and its input, which is the output of the previous block.
void Executor::await_activations(Slot& slot, int index) {
  for (const int block : {index - 1, index})
    if (KeptBlock* kept_block = slot.kept_block(block)) offloading_.await(*kept_block, stream_);
}

void Executor::release_activations(Slot& slot, int index) {
  if (KeptBlock* kept_block = slot.kept_block(index)) offloading_.release(*kept_block, stream_);
}

// Called before the backward of the stage's last block: dy is the dx of the next stage; the last stage has
// none.
void Executor::receive_gradient(StageState& state, Slot& slot, int micro) {
  if (is_last(state.stage)) return;
  Message* message = messages_.find(Message::Role::Gradient, state.stage.index, micro);
  check(message != nullptr, "the gradient of its output was not received");
  stream_.wait(message->ready);
  slot.gradient = message->tensor;
}

// Called after the backward of the stage's first block: sends dx to the previous stage in a message.
void Executor::pass_gradient(StageState& state, int micro, Tensor dx) {
  const int stage = state.stage.index;
  if (stage == 0 || !state.stage.returns_gradient()) return;
  const bool local = is_local(stage - 1);
  Message& message = messages_.take(local ? Message::Role::Gradient : Message::Role::Outgoing,
                                    local ? stage - 1 : stage, micro, dx.dtype, dx.shape, stream_);
  ops_.copy(stream_, message.tensor, dx);
}

namespace {

// The blocks of an action, last first: [from, to].
struct BlockSpan {
  int from, to;
};

BlockSpan span_of(const Action& action, const Stage& stage) {
  if (action.block != Action::kAll) {
    check(action.block < static_cast<int>(stage.blocks.size()), "stage {} has {} blocks", stage.index,
          stage.blocks.size());
    return {action.block, action.block};
  }
  return {static_cast<int>(stage.blocks.size()) - 1, 0};
}

}  // namespace

Executor::BlockUse Executor::backward_use(const StageBlock& block, size_t index, Arena& flow, Tensor* through,
                                          const Half& half) {
  BlockUse use{index, flow, through, half};
  use.wants_dx = block.backward == BlockBackward::All;
  return use;
}

void Executor::whole_backward(const Action& action, const StepInputs& inputs, const Half& half) {
  StageState& state = state_of(action);
  Slot& slot = state.slots.of(action.micro);
  const auto [from, to] = span_of(action, state.stage);
  check(!is_open_ || (open_.stage == action.stage && open_.micro == action.micro),
        "it comes while {} has not reached its first block", to_string(open_));
  if (from + 1 == static_cast<int>(state.stage.blocks.size())) receive_gradient(state, slot, action.micro);
  for (int block = from; block >= to; --block) {
    const auto index = static_cast<size_t>(block);
    Arena& flow = flows_[index % 2];  // dy is in the other one
    flow.reset();
    const StageBlock& part = state.stage.blocks[index];
    await_activations(slot, block);
    if (part.backward != BlockBackward::None) {
      params_.enter(part.index, stream_);
      open_gradients(action.kind, state, index, inputs);
      compute(action, state, slot, backward_use(part, index, flow, &slot.gradient, half), inputs,
              [&](Run& run) { slot.gradient = part.layer->backward(run, slot.gradient, slot.saved[index]); });
    }
    release_activations(slot, block);
  }
  open_ = action;
  is_open_ = to > 0;
  if (to > 0) return;
  pass_gradient(state, action.micro, slot.gradient);
  finish(state, slot);
}

void Executor::input_backward(const Action& action, const StepInputs& inputs, const Half& half) {
  StageState& state = state_of(action);
  Slot& slot = state.slots.of(action.micro);
  const auto [from, to] = span_of(action, state.stage);
  if (from + 1 == static_cast<int>(state.stage.blocks.size())) {
    receive_gradient(state, slot, action.micro);
    state.slots.add_pending(action.micro);
  }
  PendingWeightGrad* pending = state.slots.find_pending(action.micro);
  check(pending != nullptr, "the I of the blocks after it is missing");
  for (int block = from; block >= to; --block) {
    const auto index = static_cast<size_t>(block);
    const StageBlock& part = state.stage.blocks[index];
    await_activations(slot, block);
    if (part.backward == BlockBackward::None) continue;
    params_.enter(part.index, stream_);
    open_gradients(action.kind, state, index, inputs);
    compute(
        action, state, slot, backward_use(part, index, pending->memory, &slot.gradient, half), inputs,
        [&](Run& run) { slot.gradient = part.layer->backward_input(run, slot.gradient, slot.saved[index]); });
  }
  if (to == 0) pass_gradient(state, action.micro, slot.gradient);
}

void Executor::weight_backward(const Action& action, const StepInputs& inputs, const Half& half) {
  StageState& state = state_of(action);
  Slot& slot = state.slots.of(action.micro);
  PendingWeightGrad* pending = state.slots.find_pending(action.micro);
  check(pending != nullptr, "its I is missing");
  const auto [from, to] = span_of(action, state.stage);
  for (int block = from; block >= to; --block) {
    const auto index = static_cast<size_t>(block);
    const StageBlock& part = state.stage.blocks[index];
    await_activations(slot, block);
    if (part.backward != BlockBackward::None) {
      open_gradients(action.kind, state, index, inputs);
      if (part.layer->weight_backward_reads_weights()) params_.enter(part.index, stream_);
      compute(action, state, slot, backward_use(part, index, pending->memory, nullptr, half), inputs,
              [&](Run& run) { part.layer->backward_weight(run, slot.saved[index]); });
    }
    release_activations(slot, block);
  }
  if (to > 0) return;
  state.slots.release(*pending);
  finish(state, slot);
}

}  // namespace trifold
