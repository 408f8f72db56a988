#include "pipeline/executor.h"

#include <algorithm>

#include "core/small_list.h"
#include "schedule/batches.h"

namespace trifold {

namespace {

bool has_stage(const PipelineRank& pipeline, int stage) {
  return std::any_of(pipeline.stages.begin(), pipeline.stages.end(),
                     [&](const Stage& other) { return other.index == stage; });
}

}  // namespace

RankPlan forward_row_of(const PipelineRank& pipeline) {
  const int last = static_cast<int>(pipeline.rank_of_stage.size()) - 1;
  RankPlan row;
  for (const Stage& stage : pipeline.stages) {
    if (stage.index > 0 && !has_stage(pipeline, stage.index - 1))
      row.push_back({ActionKind::RecvF, stage.index, Action::kAll, 0});
    row.push_back({ActionKind::F, stage.index, Action::kAll, 0});
    if (stage.index < last && !has_stage(pipeline, stage.index + 1))
      row.push_back({ActionKind::SendF, stage.index, Action::kAll, 0});
  }
  return row;
}

Executor::Executor(PipelineRank pipeline, const Mesh& mesh, const OpTable& ops, ParamSource& params,
                   GradSink* grads, Stream& stream, Stream& side, LayerType type)
    : pipeline_(std::move(pipeline)),
      mesh_(mesh),
      ops_(ops),
      params_(params),
      grads_(grads),
      stream_(stream),
      side_(side),
      type_(type),
      measuring_(true),
      messages_(Messages::measuring()),
      scratch_(Arena::measuring()),
      pair_scratch_(Arena::measuring()),
      losses_(Buffer::shared(sizeof(LossSums), ops.device)) {
  flows_.push_back(Arena::measuring());
  flows_.push_back(Arena::measuring());
  for (const Stage& stage : pipeline_.stages) stages_.push_back({stage, StageSlots::measuring()});
  forward_row_ = pipeline_.forward_row.empty() ? forward_row_of(pipeline_) : pipeline_.forward_row;
}

Executor::Executor(PipelineRank pipeline, const Mesh& mesh, const OpTable& ops, ParamSource& params,
                   GradSink* grads, Stream& stream, Stream& side, LayerType type,
                   const ActivationMemory& memory)
    : Executor(std::move(pipeline), mesh, ops, params, grads, stream, side, type) {
  measuring_ = false;
  scratch_ = Arena(memory.scratch, ops.device);
  pair_scratch_ = Arena(memory.pair_scratch, ops.device);
  for (int i = 0; i < 2; ++i)
    flows_[static_cast<size_t>(i)] = Arena(i < memory.flows ? memory.flow : 0, ops.device);
  messages_ = Messages(memory.message, memory.messages, ops.device);
  size_t file_bytes = 0;
  for (size_t i = 0; i < stages_.size(); ++i)
    stages_[i].slots = StageSlots(memory.stages.at(i), ops.device, file_bytes);
  if (file_bytes > 0) {
    check(pipeline_.offload_stream != nullptr && pipeline_.offloads_device == (ops.device != nullptr),
          "the plan off-loads activations, and there is no stream that moves them");
    Stream& moves = *pipeline_.offload_stream;
    offloading_ = pipeline_.offloads_device
                      ? Offloading(ops, file_bytes, memory.largest_kept_block(), memory.kept_buffers, moves)
                      : Offloading(pipeline_.offload_folder, file_bytes, memory.kept_blocks, moves);
  }
  if (ops.device != nullptr && memory.batches > 0)
    device_batches_ = std::make_unique<DeviceBatches>(ops, stream, memory.batches);
}

Executor::~Executor() {
  for (Stream* stream :
       {&side_, pipeline_.forward_stream, pipeline_.backward_stream, pipeline_.exchange_stream}) {
    try {
      if (stream != nullptr) stream->synchronize();
    } catch (...) {  // rethrown by the next wait for the stream
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

Executor::StageState& Executor::state_of(const Action& action) {
  for (StageState& state : stages_)
    if (state.stage.index == action.stage) return state;
  fail("stage {} is not on this rank", action.stage);
}

bool Executor::is_local(int stage) const { return has_stage(pipeline_, stage); }

bool Executor::is_last(const Stage& stage) const {
  return stage.index + 1 == static_cast<int>(pipeline_.rank_of_stage.size());
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

Shape Executor::boundary(const Batch& batch, int stage) const {
  return pipeline_.outputs.at(static_cast<size_t>(stage))
      .shape(batch.samples(), batch.seq_length(), type_.dtype);
}

// Exchanges a batch of messages of one direction, which become ready, or spare, at the same time.
void Executor::exchange(std::span<const Action> batch, const StepInputs& inputs) {
  const bool forward = is_forward_message(batch.front().kind);
  constexpr size_t kFew = 4;  // a batch seldom has more messages
  SmallList<Transfer, kFew> transfers;
  SmallList<Message*, kFew> received;
  SmallList<Message*, kFew> sent;
  SmallList<std::pair<StageState*, Slot*>, kFew> sent_outputs;
  for (const Action& action : batch) {
    StageState& state = state_of(action);
    const bool sends = is_send(action.kind);
    const int other = action.stage + (forward == sends ? 1 : -1);
    const int peer = pipeline_.rank_of_stage.at(static_cast<size_t>(other));
    Tensor tensor;
    if (!sends) {
      const Batch& data = batch_of(action.micro, inputs);
      const auto role = forward ? Message::Role::Input : Message::Role::Gradient;
      const Shape shape = boundary(data, forward ? other : action.stage);
      received.push_back(&messages_.take(role, action.stage, action.micro, type_.dtype, shape, stream_));
      tensor = received.back()->tensor;
    } else if (forward) {
      sent_outputs.push_back({&state, &state.slots.of(action.micro)});
      tensor = sent_outputs.back().second->output;
      Message* message = messages_.find(Message::Role::Output, action.stage, action.micro);
      if (message != nullptr) sent.push_back(message);
    } else {
      sent.push_back(messages_.find(Message::Role::Outgoing, action.stage, action.micro));
      check(sent.back() != nullptr, "{}: there is no gradient to send", to_string(action));
      tensor = sent.back()->tensor;
    }
    transfers.push_back({sends ? Transfer::Direction::Send : Transfer::Direction::Receive, peer, tensor});
  }
  Event done;
  if (!measuring_ && !rehearsing_) {
    Stream& stream = forward ? *pipeline_.forward_stream : *pipeline_.backward_stream;
    stream.wait(stream_.record());
    (forward ? pipeline_.forward : pipeline_.backward)->exchange(transfers, stream);
    done = stream.record();
  }
  for (Message* message : received) message->ready = done;
  for (Message* message : sent) messages_.release(*message, done);
  for (auto [state, slot] : sent_outputs) {
    slot->sent = done;
    if (!keeps(*state)) finish(*state, *slot);
  }
}

// The model's block that completes the unit of an action. The index after the stage's last block stands for
// the copy of a tied weight, which no block completes.
int Executor::model_block(const Action& action) {
  const Stage& stage = state_of(action).stage;
  const auto block = static_cast<size_t>(std::max(action.block, 0));
  return block == stage.blocks.size() ? kCopyOfTied : stage.blocks.at(block).index;
}

void Executor::execute(const Action& action, const StepInputs& inputs) {
  if (rehearsing_ && (action.kind == ActionKind::ReduceGrad || action.kind == ActionKind::ReduceTied ||
                      action.kind == ActionKind::Step))
    return;
  switch (action.kind) {
    case ActionKind::F:
    case ActionKind::B:
    case ActionKind::I:
    case ActionKind::W:
      return compute(action, inputs, {});
    case ActionKind::ReduceGrad:
      return grads_->reduce(model_block(action), stream_);
    case ActionKind::Unshard:
      return params_.unshard(model_block(action), stream_);
    case ActionKind::Reshard:
      return params_.reshard(model_block(action), stream_);
    case ActionKind::Offload:
    case ActionKind::Fetch:
      return move_activations(action);
    case ActionKind::ReduceTied:
      return grads_->reduce_tied(stream_);
    default:  // messages do not come here: they are exchanged together
      return inputs.others(action);
  }
}

void Executor::collect(const ReportList& reports) {
  const int64_t counters = reports.counters.elements(), values = reports.host_values.elements();
  if (counters > 0) {
    counter_memory_ = Buffer::shared(static_cast<size_t>(counters) * sizeof(double), ops_.device);
    counters_ = counter_memory_.tensor(DType::F64, {counters});
  }
  if (values > 0) {
    host_value_memory_ = Buffer::shared(static_cast<size_t>(values) * sizeof(int32_t), ops_.device);
    host_values_ = host_value_memory_.tensor(DType::I32, {values});
    std::fill_n(host_values_.as<int32_t>(), values, 0);
  }
}

void Executor::reset(const RankPlan& row, const StepInputs& inputs) {
  loss_rows_ = 1;
  if (inputs.micros_per_batch > 0)
    for (const Action& action : row)
      if (has_micro(action.kind))
        loss_rows_ = std::max(loss_rows_, int64_t{action.micro / inputs.micros_per_batch} + 1);
  const auto numbers = static_cast<size_t>(kLossNumbers * loss_rows_);
  if (losses_.bytes() < numbers * sizeof(double))
    losses_ = Buffer::shared(numbers * sizeof(double), ops_.device);
  std::fill_n(losses_.tensor(DType::F64, {kLossNumbers * loss_rows_}).as<double>(), numbers, 0.0);
  if (counters_.data != nullptr) std::fill_n(counters_.as<double>(), counters_.elements(), 0.0);
  for (StageState& state : stages_) state.slots.release_all();
  messages_.release_all();
  batches_.clear();
  micro_order_.clear();
  is_open_ = false;
}

std::span<const LossSums> Executor::take_losses() {
  stream_.synchronize();
  const double* sums = losses().as<double>();
  sums_.clear();
  for (int64_t row = 0; row < loss_rows_; ++row, sums += kLossNumbers) {
    LossSums all{sums[0], sums[1]};
    std::copy_n(sums + 2, kMostLossTerms, all.terms.begin());
    sums_.push_back(all);
  }
  return sums_;
}

void Executor::enqueue(const RankPlan& row, const StepInputs& inputs) {
  reset(row, inputs);
  if (measuring_) find_kept_blocks(row);
  for (size_t i = 0; i < row.size();) {
    try {
      if (row[i].overlaps_next) {
        const FlightScope recorded(
            recorder(), FlightEvent::Kind::Action,
            recorder() == nullptr ? std::string() : to_string(row[i]) + ";" + to_string(row.at(i + 1)));
        execute_pair(row[i], row.at(i + 1), inputs);
        i += 2;
        continue;
      }
      const size_t end = is_message(row[i].kind) ? batch_end(row, i) : i + 1;
      const FlightScope recorded(recorder(), FlightEvent::Kind::Action,
                                 recorder() == nullptr ? std::string() : to_string(row[i]));
      if (inputs.watch != nullptr) inputs.watch->before(row[i]);
      if (is_message(row[i].kind))
        exchange(std::span(row).subspan(i, end - i), inputs);
      else
        execute(row[i], inputs);
      if (inputs.watch != nullptr) inputs.watch->after(row[i]);
      i = end;
    } catch (Error& error) {
      error.add_context(row[i].overlaps_next
                            ? fmt::format("{} beside {}", to_string(row[i]), to_string(row.at(i + 1)))
                            : to_string(row[i]));
      throw;
    }
  }
}

std::span<const LossSums> Executor::run(const RankPlan& row, const StepInputs& inputs) {
  enqueue(row, inputs);
  return take_losses();
}

// If blocks are captured, it must be called twice, because the first execution of a block's work is not captured.
void Executor::rehearse(const RankPlan& row, const StepInputs& inputs) {
  rehearsing_ = true;
  run(row, inputs);
  evaluate(inputs.batch(0));
  rehearsing_ = false;
}

LossSums Executor::evaluate(const Batch& batch, StepWatch* watch, FunctionRef<void(const Action&)> others) {
  const auto give_batch = [&](int) { return batch; };
  keeps_for_backward_ = false;
  const LossSums sums = run(forward_row_, {0, 1.0, false, give_batch, others, 0, watch}).front();
  keeps_for_backward_ = true;
  return sums;
}

}  // namespace trifold
