#include "pipeline/executor.h"

#include <algorithm>

#include "core/small_list.h"
#include "pipeline/batches.h"

namespace trifold {

namespace {

bool has_stage(const PipelinePlace& place, int stage) {
  return std::any_of(place.stages.begin(), place.stages.end(),
                     [&](const Stage& other) { return other.index == stage; });
}

}  // namespace

RankPlan forward_row_of(const PipelinePlace& place) {
  const int last = static_cast<int>(place.rank_of_stage.size()) - 1;
  RankPlan row;
  for (const Stage& stage : place.stages) {
    if (stage.index > 0 && !has_stage(place, stage.index - 1))
      row.push_back({ActionKind::RecvF, stage.index, Action::kAll, 0});
    row.push_back({ActionKind::F, stage.index, Action::kAll, 0});
    if (stage.index < last && !has_stage(place, stage.index + 1))
      row.push_back({ActionKind::SendF, stage.index, Action::kAll, 0});
  }
  return row;
}

Executor::Executor(PipelinePlace place, const Mesh& mesh, const OpTable& ops, ParamSource& params,
                   GradSink* grads, Stream& stream, Stream& side, DType dtype)
    : place_(std::move(place)),
      mesh_(mesh),
      ops_(ops),
      params_(params),
      grads_(grads),
      stream_(stream),
      side_(side),
      dtype_(dtype),
      measuring_(true),
      messages_(Messages::measuring()),
      scratch_(Arena::measuring()),
      losses_(Buffer::shared(2 * sizeof(double), ops.device)) {
  flows_.push_back(Arena::measuring());
  flows_.push_back(Arena::measuring());
  for (const Stage& stage : place_.stages) stages_.push_back({stage, StageSlots::measuring()});
  forward_row_ = place_.forward_row.empty() ? forward_row_of(place_) : place_.forward_row;
}

Executor::Executor(PipelinePlace place, const Mesh& mesh, const OpTable& ops, ParamSource& params,
                   GradSink* grads, Stream& stream, Stream& side, DType dtype, const ActivationMemory& memory)
    : Executor(std::move(place), mesh, ops, params, grads, stream, side, dtype) {
  measuring_ = false;
  scratch_ = Arena(memory.scratch, ops.device);
  for (Arena& flow : flows_) flow = Arena(memory.flow, ops.device);
  messages_ = Messages(memory.message, memory.messages, ops.device);
  for (size_t i = 0; i < stages_.size(); ++i) stages_[i].slots = StageSlots(memory.stages.at(i), ops.device);
  if (ops.device != nullptr) device_batches_ = std::make_unique<DeviceBatches>(ops, stream, memory.batches);
}

Executor::~Executor() {
  for (Stream* stream : {&side_, place_.forward_stream, place_.backward_stream}) {
    try {
      if (stream != nullptr) stream->synchronize();
    } catch (...) {  // whoever waits for the stream next is told
    }
  }
}

void Executor::capture_blocks(const ParamList& params) {
  check(mesh_.size(Axis::Tp) == 1, "blocks with collectives of tensor ranks are not captured");
  graphs_ = std::make_unique<BlockGraphs>(params, stream_);
}

const std::string& Executor::capture_note() const {
  static const std::string kNone;
  return graphs_ ? graphs_->note() : kNone;
}

namespace {

// Parameters without memory, for the dry walk.
class ShapesOnly final : public ParamSource, public GradSink {
 public:
  ShapesOnly(const ParamList& params, DType dtype) : params_(params), dtype_(dtype) {}
  Tensor weight(ParamId id) const override { return {nullptr, dtype_, params_[id].shard.local.extent}; }
  Tensor grad(ParamId id) const override {
    return {nullptr, accumulate_type(dtype_), params_[id].shard.local.extent};
  }
  void reduce(int, Stream&) override {}
  void reduce_tied(Stream&) override {}

 private:
  const ParamList& params_;
  DType dtype_;
};

}  // namespace

// Calls walk(executor, batch) with an executor that neither computes nor communicates.
template <class Walk>
ActivationMemory Executor::measure_walk(const PipelinePlace& place, const ParamList& params, const Mesh& mesh,
                                        int64_t micro_batch_size, int64_t seq_length, DType dtype,
                                        Walk walk) {
  ThreadPool pool(1);
  Stream dry(Stream::Mode::Dry, pool);
  ShapesOnly shapes(params, dtype);
  Executor walker(place, mesh, cpu_ops(), shapes, &shapes, dry, dry, dtype);
  walk(walker, batch_without_memory(micro_batch_size, seq_length));
  return walker.measured();
}

ActivationMemory Executor::measure(const PipelinePlace& place, const ParamList& params, const Mesh& mesh,
                                   const RankPlan& row, int64_t micro_batch_size, int64_t seq_length,
                                   DType dtype) {
  const auto walk = [&](Executor& walker, const Batch& batch) {
    const auto give_batch = [&](int) { return batch; };
    const auto no_step = [](const Action&) {};
    walker.run(row, {0, 1.0, true, give_batch, no_step});
  };
  return measure_walk(place, params, mesh, micro_batch_size, seq_length, dtype, walk);
}

ActivationMemory Executor::measure_forward(const PipelinePlace& place, const ParamList& params,
                                           const Mesh& mesh, int64_t micro_batch_size, int64_t seq_length,
                                           DType dtype) {
  const auto walk = [](Executor& walker, const Batch& batch) { walker.evaluate(batch); };
  return measure_walk(place, params, mesh, micro_batch_size, seq_length, dtype, walk);
}

ActivationMemory Executor::measured() const {
  ActivationMemory memory;
  for (const StageState& state : stages_) memory.stages.push_back(state.slots.measured());
  for (const Arena& flow : flows_) memory.flow = std::max(memory.flow, flow.peak());
  memory.scratch = scratch_.peak();
  memory.message = messages_.bytes();
  // One more than the walk needs, which knows nothing of how long a message takes to leave.
  memory.messages = messages_.count() == 0 ? 0 : messages_.count() + 1;
  memory.batches = static_cast<int>(batches_held_);
  memory.micro_order = micro_order_;
  return memory;
}

Executor::StageState& Executor::state_of(const Action& action) {
  for (StageState& state : stages_)
    if (state.stage.index == action.stage) return state;
  fail("stage {} is not on this rank", action.stage);
}

bool Executor::is_local(int stage) const { return has_stage(place_, stage); }

bool Executor::is_last(const Stage& stage) const {
  return stage.index + 1 == static_cast<int>(place_.rank_of_stage.size());
}

std::vector<Executor::BatchUse>::iterator Executor::use_of(int micro) {
  return std::find_if(batches_.begin(), batches_.end(),
                      [&](const BatchUse& use) { return use.micro == micro; });
}

const Batch& Executor::batch_of(int micro, const StepInputs& inputs) {
  const auto found = use_of(micro);
  if (found != batches_.end()) return found->batch;
  const auto number = static_cast<int64_t>(micro_order_.size());
  micro_order_.push_back(micro);
  const Batch batch = inputs.batch(micro);
  batches_.push_back(
      {micro, device_batches_ ? device_batches_->take(batch, number, inputs.loss_scale) : batch, number, 0});
  return batches_.back().batch;
}

Shape Executor::boundary(const Batch& batch) const {
  return {batch.samples() * batch.seq_length() / place_.row_parts, place_.width};
}

Run Executor::make_run(const Action& action, Slot& slot, Arena& flow, const StepInputs& inputs) {
  const int64_t batch = inputs.micros_per_batch == 0 ? 0 : action.micro / inputs.micros_per_batch;
  const Tensor losses = losses_.tensor(DType::F64, {loss_rows_, 2}).rows(batch, batch + 1).reshape({2});
  return {stream_,
          side_,
          ops_,
          mesh_,
          measuring_ ? params_ : params_.at_version(action.version),
          grads_,
          slot.keep,
          flow,
          scratch_,
          &slot.batch,
          dtype_,
          inputs.training,
          inputs.seed,
          inputs.loss_scale,
          losses.rows(0, 1),
          losses.rows(1, 2),
          inputs.watch};
}

template <class Work>
void Executor::compute(const Action& action, const StageState& state, size_t index, Slot& slot, Arena& flow,
                       Tensor* through, const StepInputs& inputs, Work work) {
  const StageBlock& block = state.stage.blocks[index];
  Run run = make_run(action, slot, flow, inputs);
  if (graphs_ && inputs.training && inputs.watch == nullptr) {
    const BlockWork of_block{action.kind,
                             block.index,
                             run,
                             through,
                             slot.saved[index],
                             action.kind != ActionKind::W,
                             opens_gradients(action.kind, state, index, inputs)};
    return graphs_->run(of_block, [&] { work(run); });
  }
  if (inputs.watch != nullptr) inputs.watch->begin(action, block.index, slot.batch, run.params, stream_);
  work(run);
  if (inputs.watch != nullptr) inputs.watch->end(stream_);
}

// The output of the stage before: received, or still in its slot where that stage is on this rank too.
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
  if (grads_ == nullptr || !inputs.training) return false;
  const bool last_block = is_last(state.stage) && index + 1 == state.stage.blocks.size();
  return adds_to_gradients(kind, last_block);
}

void Executor::open_gradients(ActionKind kind, const StageState& state, size_t index,
                              const StepInputs& inputs) {
  if (opens_gradients(kind, state, index, inputs)) grads_->open(state.stage.blocks[index].index, stream_);
}

void Executor::forward(const Action& action, const StepInputs& inputs) {
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
  if (!is_open_) flows_[0].reset();  // of what the last backward left there
  for (int index = from; index < to; ++index) {
    const StageBlock& block = state.stage.blocks.at(static_cast<size_t>(index));
    check(slot.forwarded == index, "the blocks before it have not gone forward");
    ++slot.forwarded;
    params_.enter(block.index, stream_);
    open_gradients(action.kind, state, static_cast<size_t>(index), inputs);
    if (static_cast<int>(slot.saved.size()) == index) slot.saved.emplace_back(block.slots);
    Saved& saved = slot.saved[static_cast<size_t>(index)];
    saved.clear();
    compute(action, state, static_cast<size_t>(index), slot, flows_[0], &slot.output, inputs,
            [&](Run& run) { slot.output = block.layer->forward(run, slot.output, saved); });
  }
  if (to == count && !keeps_for_backward_) release_forward_only(state, slot);
}

// Without a backward a slot is done with when the next stage has its output.
void Executor::release_forward_only(StageState& state, Slot& slot) {
  const int stage = state.stage.index;
  if (stage > 0 && is_local(stage - 1)) {
    StageState& before = state_of({ActionKind::F, stage - 1});
    finish(before, before.slots.of(slot.micro));
  }
  if (is_last(state.stage)) finish(state, slot);
}

// The micro-batch leaves the stage: gives back its slot, its messages and, with the last stage of this rank,
// its data.
void Executor::finish(StageState& state, Slot& slot) {
  for (Message::Role role : {Message::Role::Input, Message::Role::Gradient})
    if (Message* message = messages_.find(role, state.stage.index, slot.micro))
      messages_.release(*message, stream_.record());
  const auto use = use_of(slot.micro);
  if (use != batches_.end() && ++use->stages_done == static_cast<int>(stages_.size())) {
    batches_held_ = std::max(batches_held_, static_cast<int64_t>(micro_order_.size()) - use->number);
    if (device_batches_) device_batches_->release(use->number);
    batches_.erase(use);
  }
  state.slots.release(slot);
}

// Before the backward of the stage's last block: dy is the dx of the next stage, none after the last one.
void Executor::receive_gradient(StageState& state, Slot& slot, int micro) {
  if (is_last(state.stage)) return;
  Message* message = messages_.find(Message::Role::Gradient, state.stage.index, micro);
  check(message != nullptr, "the gradient of its output was not received");
  stream_.wait(message->ready);
  slot.gradient = message->tensor;
}

// After the backward of the stage's first block: dx goes to the stage before, by message.
void Executor::pass_gradient(StageState& state, int micro, Tensor dx) {
  const int stage = state.stage.index;
  if (stage == 0) return;
  const bool local = is_local(stage - 1);
  Message& message = messages_.take(local ? Message::Role::Gradient : Message::Role::Outgoing,
                                    local ? stage - 1 : stage, micro, dtype_, dx.shape, stream_);
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

void Executor::whole_backward(const Action& action, const StepInputs& inputs) {
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
    params_.enter(part.index, stream_);
    open_gradients(action.kind, state, index, inputs);
    compute(action, state, index, slot, flow, &slot.gradient, inputs,
            [&](Run& run) { slot.gradient = part.layer->backward(run, slot.gradient, slot.saved[index]); });
  }
  open_ = action;
  is_open_ = to > 0;
  if (to > 0) return;
  pass_gradient(state, action.micro, slot.gradient);
  finish(state, slot);
}

void Executor::input_backward(const Action& action, const StepInputs& inputs) {
  StageState& state = state_of(action);
  Slot& slot = state.slots.of(action.micro);
  const auto [from, to] = span_of(action, state.stage);
  if (from + 1 == static_cast<int>(state.stage.blocks.size())) {
    receive_gradient(state, slot, action.micro);
    state.slots.take_held(action.micro);
  }
  Held* held = state.slots.find_held(action.micro);
  check(held != nullptr, "the I of the blocks behind it has not come");
  for (int block = from; block >= to; --block) {
    const auto index = static_cast<size_t>(block);
    const StageBlock& part = state.stage.blocks[index];
    params_.enter(part.index, stream_);
    compute(action, state, index, slot, held->memory, &slot.gradient, inputs, [&](Run& run) {
      slot.gradient = part.layer->backward_input(run, slot.gradient, slot.saved[index]);
    });
  }
  if (to == 0) pass_gradient(state, action.micro, slot.gradient);
}

void Executor::weight_backward(const Action& action, const StepInputs& inputs) {
  StageState& state = state_of(action);
  Slot& slot = state.slots.of(action.micro);
  Held* held = state.slots.find_held(action.micro);
  check(held != nullptr, "its I has not come");
  const auto [from, to] = span_of(action, state.stage);
  for (int block = from; block >= to; --block) {
    const auto index = static_cast<size_t>(block);
    const StageBlock& part = state.stage.blocks[index];
    open_gradients(action.kind, state, index, inputs);
    compute(action, state, index, slot, held->memory, nullptr, inputs,
            [&](Run& run) { part.layer->backward_weight(run, slot.saved[index]); });
  }
  if (to > 0) return;
  state.slots.release(*held);
  finish(state, slot);
}

// One batch of messages of one direction. They are ready, or gone, when all of the batch is.
void Executor::exchange(std::span<const Action> batch, const StepInputs& inputs) {
  const bool forward = is_forward_message(batch.front().kind);
  constexpr size_t kFew = 4;  // messages that a batch seldom exceeds
  SmallList<Transfer, kFew> transfers;
  SmallList<Message*, kFew> received;
  SmallList<Message*, kFew> sent;
  SmallList<std::pair<StageState*, Slot*>, kFew> sent_outputs;
  for (const Action& action : batch) {
    StageState& state = state_of(action);
    const bool sends = is_send(action.kind);
    const int other = action.stage + (forward == sends ? 1 : -1);
    const int peer = place_.rank_of_stage.at(static_cast<size_t>(other));
    Tensor tensor;
    if (!sends) {
      const Batch& data = batch_of(action.micro, inputs);
      const auto role = forward ? Message::Role::Input : Message::Role::Gradient;
      received.push_back(&messages_.take(role, action.stage, action.micro, dtype_, boundary(data), stream_));
      tensor = received.back()->tensor;
    } else if (forward) {
      sent_outputs.push_back({&state, &state.slots.of(action.micro)});
      tensor = sent_outputs.back().second->output;
    } else {
      sent.push_back(messages_.find(Message::Role::Outgoing, action.stage, action.micro));
      check(sent.back() != nullptr, "{}: there is no gradient to send", to_string(action));
      tensor = sent.back()->tensor;
    }
    transfers.push_back({sends ? Transfer::Direction::Send : Transfer::Direction::Receive, peer, tensor});
  }
  Event done;
  if (!measuring_) {
    Stream& stream = forward ? *place_.forward_stream : *place_.backward_stream;
    stream.wait(stream_.record());
    (forward ? place_.forward : place_.backward)->exchange(transfers, stream);
    done = stream.record();
  }
  for (Message* message : received) message->ready = done;
  for (Message* message : sent) messages_.release(*message, done);
  for (auto [state, slot] : sent_outputs) {
    slot->sent = done;
    if (!keeps_for_backward_) finish(*state, *slot);
  }
}

// The block of the model that completes the unit an action is about. One past the stage's last block stands
// for the copy of a tied weight, which no block completes.
int Executor::model_block(const Action& action) {
  const Stage& stage = state_of(action).stage;
  const auto block = static_cast<size_t>(std::max(action.block, 0));
  return block == stage.blocks.size() ? kCopyOfTied : stage.blocks.at(block).index;
}

void Executor::execute(const Action& action, const StepInputs& inputs) {
  switch (action.kind) {
    case ActionKind::F:
      return forward(action, inputs);
    case ActionKind::B:
      return whole_backward(action, inputs);
    case ActionKind::I:
      return input_backward(action, inputs);
    case ActionKind::W:
      return weight_backward(action, inputs);
    case ActionKind::ReduceGrad:
      return grads_->reduce(model_block(action), stream_);
    case ActionKind::Unshard:
      return params_.unshard(model_block(action), stream_);
    case ActionKind::Reshard:
      return params_.reshard(model_block(action), stream_);
    case ActionKind::ReduceTied:
      return grads_->reduce_tied(stream_);
    case ActionKind::Step:
      return inputs.step(action);
    case ActionKind::SendF:
    case ActionKind::RecvF:
    case ActionKind::SendB:
    case ActionKind::RecvB:
      break;
  }
  fail("this executor has no way to do it");
}

void Executor::reset(const RankPlan& row, const StepInputs& inputs) {
  loss_rows_ = 1;
  if (inputs.micros_per_batch > 0)
    for (const Action& action : row)
      if (has_micro(action.kind))
        loss_rows_ = std::max(loss_rows_, int64_t{action.micro / inputs.micros_per_batch} + 1);
  const auto numbers = static_cast<size_t>(2 * loss_rows_);
  if (losses_.bytes() < numbers * sizeof(double))
    losses_ = Buffer::shared(numbers * sizeof(double), ops_.device);
  std::fill_n(losses_.tensor(DType::F64, {2 * loss_rows_}).as<double>(), numbers, 0.0);
  for (StageState& state : stages_) state.slots.release_all();
  messages_.release_all();
  batches_.clear();
  micro_order_.clear();
  is_open_ = false;
}

std::span<const LossSums> Executor::take_losses() {
  stream_.synchronize();
  const double* sums = losses_.tensor(DType::F64, {2 * loss_rows_}).as<double>();
  sums_.clear();
  for (int64_t row = 0; row < loss_rows_; ++row) sums_.push_back({sums[2 * row], sums[2 * row + 1]});
  return sums_;
}

std::span<const LossSums> Executor::run(const RankPlan& row, const StepInputs& inputs) {
  reset(row, inputs);
  for (size_t i = 0; i < row.size();) {
    try {
      const size_t end = is_message(row[i].kind) ? batch_end(row, i) : i + 1;
      if (is_message(row[i].kind))
        exchange(std::span(row).subspan(i, end - i), inputs);
      else
        execute(row[i], inputs);
      if (inputs.watch != nullptr) inputs.watch->after(row[i]);
      i = end;
    } catch (Error& error) {
      error.add_context(to_string(row[i]));
      throw;
    }
  }
  return take_losses();
}

LossSums Executor::evaluate(const Batch& batch, StepWatch* watch) {
  const auto give_batch = [&](int) { return batch; };
  const auto no_step = [](const Action&) {};
  keeps_for_backward_ = false;
  const LossSums sums = run(forward_row_, {0, 1.0, false, give_batch, no_step, 0, watch}).front();
  keeps_for_backward_ = true;
  return sums;
}

}  // namespace trifold
