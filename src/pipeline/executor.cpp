#include "pipeline/executor.h"

#include <algorithm>

namespace trifold {

Executor::Executor(std::vector<StageBlock> blocks, const Mesh& mesh, const OpTable& ops,
                   const ParamSource& params, GradSink* grads, Stream& stream, Stream& side, DType dtype)
    : blocks_(std::move(blocks)),
      mesh_(mesh),
      ops_(ops),
      params_(params),
      grads_(grads),
      stream_(stream),
      side_(side),
      dtype_(dtype),
      measuring_(true),
      scratch_(Arena::measuring()),
      losses_(2 * sizeof(double)) {
  flows_.push_back(Arena::measuring());
  flows_.push_back(Arena::measuring());
}

Executor::Executor(std::vector<StageBlock> blocks, const Mesh& mesh, const OpTable& ops,
                   const ParamSource& params, GradSink* grads, Stream& stream, Stream& side, DType dtype,
                   const ActivationMemory& memory)
    : Executor(std::move(blocks), mesh, ops, params, grads, stream, side, dtype) {
  measuring_ = false;
  scratch_ = Arena(memory.scratch);
  for (Arena& flow : flows_) flow = Arena(memory.flow);
  for (int i = 0; i < memory.slots; ++i)
    slots_.push_back(std::make_unique<Slot>(Slot{Arena(memory.keep), {}, {}, {}}));
}

namespace {

// Parameters without memory, for the dry walk.
class ShapesOnly final : public ParamSource, public GradSink {
 public:
  ShapesOnly(const ParamList& params, DType dtype) : params_(params), dtype_(dtype) {}
  Tensor weight(ParamId id) const override { return {nullptr, dtype_, params_[id].shard.local.extent}; }
  Tensor grad(ParamId id) const override { return weight(id); }
  void reduce(int, Stream&) override {}

 private:
  const ParamList& params_;
  DType dtype_;
};

}  // namespace

ActivationMemory Executor::measure(const std::vector<StageBlock>& blocks, const ParamList& params,
                                   const Mesh& mesh, const RankPlan& plan, int64_t micro_batch_size,
                                   int64_t seq_length, DType dtype) {
  ThreadPool pool(1);
  Stream dry(Stream::Mode::Dry, pool);
  ShapesOnly shapes(params, dtype);
  Executor walker(blocks, mesh, cpu_ops(), shapes, &shapes, dry, dry, dtype);
  Batch batch;
  const Shape shape{micro_batch_size, seq_length};
  batch.tokens = batch.labels = batch.positions = {nullptr, DType::I32, shape};
  batch.loss_weight = {nullptr, DType::F32, shape};
  const auto give_batch = [&](int) { return batch; };
  const auto no_step = [] {};
  walker.run(plan, {0, 1.0, true, give_batch, no_step});

  ActivationMemory memory;
  memory.slots = static_cast<int>(walker.slots_.size());
  for (const auto& slot : walker.slots_) memory.keep = std::max(memory.keep, slot->keep.peak());
  for (const Arena& flow : walker.flows_) memory.flow = std::max(memory.flow, flow.peak());
  memory.scratch = walker.scratch_.peak();
  return memory;
}

Run Executor::make_run(Slot& slot, Arena& flow, const StepInputs& inputs) {
  const Tensor losses = losses_.tensor(DType::F64, {2});
  return {stream_,
          side_,
          ops_,
          mesh_,
          params_,
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
          losses.rows(1, 2)};
}

Executor::Slot& Executor::slot_of(int micro) {
  for (auto& slot : slots_)
    if (slot->micro == micro) return *slot;
  fail("micro-batch {} is not in flight", micro);
}

Executor::Slot& Executor::free_slot() {
  for (auto& slot : slots_)
    if (slot->micro == Action::kAll) return *slot;
  check(measuring_, "the plan has more micro-batches in flight than the {} slots measured for it",
        slots_.size());
  slots_.push_back(std::make_unique<Slot>(Slot{Arena::measuring(), {}, {}, {}}));
  return *slots_.back();
}

void Executor::forward(int micro, const StepInputs& inputs) {
  Slot& slot = free_slot();
  slot.micro = micro;
  slot.batch = inputs.batch(micro);
  slot.keep.reset();
  slot.saved.clear();
  slot.gradient = {};
  Run run = make_run(slot, flows_[0], inputs);
  Tensor x;
  for (const StageBlock& block : blocks_) {
    slot.saved.emplace_back(block.slots);
    x = block.layer->forward(run, x, slot.saved.back());
  }
}

void Executor::backward(const Action& action, const StepInputs& inputs) {
  Slot& slot = slot_of(action.micro);
  const int count = static_cast<int>(blocks_.size());
  const int from = action.block == Action::kAll ? count - 1 : action.block;
  const int to = action.block == Action::kAll ? 0 : action.block;
  for (int block = from; block >= to; --block) {
    const auto index = static_cast<size_t>(block);
    Arena& flow = flows_[index % 2];  // dy is in the other one
    flow.reset();
    Run run = make_run(slot, flow, inputs);
    slot.gradient = blocks_[index].layer->backward(run, slot.gradient, slot.saved[index]);
  }
  if (to == 0) slot.micro = Action::kAll;
}

void Executor::execute(const Action& action, const StepInputs& inputs) {
  switch (action.kind) {
    case ActionKind::F:
      return forward(action.micro, inputs);
    case ActionKind::B:
      return backward(action, inputs);
    case ActionKind::ReduceGrad:
      return grads_->reduce(action.block, stream_);
    case ActionKind::Step:
      return inputs.step();
    case ActionKind::I:
    case ActionKind::W:
      fail("this executor runs B whole; I and W apart need gradient memory it does not hold");
    case ActionKind::SendF:
    case ActionKind::RecvF:
    case ActionKind::SendB:
    case ActionKind::RecvB:
    case ActionKind::Unshard:
    case ActionKind::Reshard:
    case ActionKind::ReduceTied:
      fail("this executor runs one stage, whose plan has no {}", name_of(action.kind));
  }
}

void Executor::clear_losses() { std::fill_n(losses_.tensor(DType::F64, {2}).as<double>(), 2, 0.0); }

LossSums Executor::take_losses() {
  stream_.synchronize();
  const double* sums = losses_.tensor(DType::F64, {2}).as<double>();
  return {sums[0], sums[1]};
}

LossSums Executor::run(const RankPlan& plan, const StepInputs& inputs) {
  clear_losses();
  for (auto& slot : slots_) slot->micro = Action::kAll;
  for (const Action& action : plan) {
    try {
      execute(action, inputs);
    } catch (Error& error) {
      error.add_context(to_string(action));
      throw;
    }
  }
  return take_losses();
}

LossSums Executor::evaluate(const Batch& batch) {
  clear_losses();
  const auto give_batch = [&](int) { return batch; };
  const auto no_step = [] {};
  forward(0, {0, 1.0, false, give_batch, no_step});
  slot_of(0).micro = Action::kAll;
  return take_losses();
}

}  // namespace trifold
