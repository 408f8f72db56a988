#include "graph/lower/graph_block.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "graph/steps/rules.h"

namespace trifold::graph {

namespace {

int64_t round_up(int64_t count) {
  return (count + kBoundaryAlignment - 1) / kBoundaryAlignment * kBoundaryAlignment;
}
Size aligned(const Size& size) { return {round_up(size.fixed), round_up(size.per_sample)}; }
Size sum(const Size& a, const Size& b) { return {a.fixed + b.fixed, a.per_sample + b.per_sample}; }

// A parameter's shape; a number is a tensor of one element.
Shape parameter_shape(const Base& base) {
  std::vector<int64_t> extents;
  for (const Size& dim : base.dims) extents.push_back(dim.fixed);
  if (extents.empty()) extents.push_back(1);
  return Shape(std::span<const int64_t>(extents));
}

}  // namespace

struct GraphBlock::BlockStep {
  std::unique_ptr<Step> step;
  int output = -1;
  bool has_backward = false, has_weight_part = false;
  // Steps of the block that `backward` and `backward_weight` repeat before this step, in their order.
  std::vector<int> repeated_first, repeated_for_weight;
  std::string name;  // for a TensorWatch
};

Size boundary_elements(const LoweredGraph& lowered, const BlockPlan& block) {
  Size count;
  for (const int base : block.leaving)
    count = sum(count, aligned(lowered.bases[static_cast<size_t>(base)].elements()));
  return count;
}

GraphBlock::GraphBlock(BlockBuilder& builder, std::shared_ptr<const LoweredGraph> lowered, size_t index,
                       ModelParameters& parameters)
    : lowered_(std::move(lowered)),
      plan_(lowered_->blocks.at(index)),
      is_first_(index == 0),
      is_last_(index + 1 == lowered_->blocks.size()),
      x_(builder.slot()) {
  if (!is_first_)
    for (const int base : lowered_->blocks[index - 1].leaving) {
      BlockBase& here = bases_[static_cast<size_t>(local(base))];
      here.enters = true;
      here.entering = entering_;
      entering_ = sum(entering_, aligned(here.base->elements()));
    }
  for (const int base : plan_.leaving) {
    BlockBase& here = bases_[static_cast<size_t>(local(base))];
    here.leaves = true;
    here.leaving = leaving_;
    leaving_ = sum(leaving_, aligned(here.base->elements()));
  }
  make_steps(builder, parameters);
  if (is_last_) {
    loss_ = lowered_->loss;
    loss_.base = local(loss_.base);
    count_ = lowered_->count;
    if (count_.exists()) count_.base = local(count_.base);
  }
  for (BlockBase& base : bases_) {
    if (base.kept) base.value = builder.slot();
    if (base.held) base.gradient = builder.slot();
  }
}

GraphBlock::~GraphBlock() = default;

int GraphBlock::local(int base) {
  const auto [at, is_new] = numbers_.try_emplace(base, static_cast<int>(bases_.size()));
  if (is_new) {
    const Base& whole = lowered_->bases[static_cast<size_t>(base)];
    BlockBase& added = bases_.emplace_back();
    added.base = &whole;
    added.needs_gradient = whole.needs_gradient;
  }
  return at->second;
}

void GraphBlock::add_parameter(BlockBuilder& builder, BlockBase& base, int index,
                               ModelParameters& parameters) {
  ParamId& first = parameters.first_uses.at(static_cast<size_t>(index));
  if (first.index >= 0) {
    base.param = builder.tied(first, "block " + std::to_string(builder.block()));
    return;
  }
  const Shape shape = parameter_shape(*base.base);
  const bool decays = base.needs_gradient && shape.rank() >= 2;
  base.param = builder.replicated(base.base->name, shape, parameters.init, decays);
  builder.freeze(base.param, !base.needs_gradient);
  first = base.param;
}

void GraphBlock::make_steps(BlockBuilder& builder, ModelParameters& parameters) {
  // All bases first: steps keep no references to them, but rules read them.
  StepOperands operands;
  for (int i = plan_.begin; i < plan_.end; ++i) {
    const StepPlan& plan = lowered_->steps[static_cast<size_t>(i)];
    operands.push_back(plan.operands);
    for (std::vector<Operand>& of_argument : operands.back())
      for (Operand& operand : of_argument) {
        const int whole = operand.base;
        const bool added = !numbers_.contains(whole);
        operand.base = local(whole);
        BlockBase& here = bases_[static_cast<size_t>(operand.base)];
        if (added && here.base->kind == Base::Kind::Parameter)
          add_parameter(builder, here, whole, parameters);
      }
    local(plan.output);
  }
  for (int i = plan_.begin; i < plan_.end; ++i) {
    const StepPlan& plan = lowered_->steps[static_cast<size_t>(i)];
    BlockStep step;
    step.step = plan.rule->make(
        {lowered_->graph, plan.node, operands[static_cast<size_t>(i - plan_.begin)], bases_, builder});
    step.output = local(plan.output);
    step.name =
        plan.node.origin.module + (plan.node.origin.module.empty() ? "" : ".") + plan.node.origin.node;
    BlockBase& output = bases_[static_cast<size_t>(step.output)];
    step.has_backward = output.needs_gradient;
    if (step.has_backward) {
      const std::vector<Operand> later = step.step->weight_operands();
      output.held = step.has_weight_part = !later.empty();
      for (const int read : read_in_backward(step)) bases_[static_cast<size_t>(read)].kept = true;
      for (const int read : computed_here(step.step->weight_reads()))
        bases_[static_cast<size_t>(read)].kept = true;
      // A parameter may be an input of the step besides its weight.
      std::map<int, int> uses;
      for (const std::vector<Operand>& of_argument : operands[static_cast<size_t>(i - plan_.begin)])
        for (const Operand& operand : of_argument) ++uses[operand.base];
      for (const Operand& operand : later) --uses[operand.base];
      for (const auto& [base, count] : uses) {
        const BlockBase& read = bases_[static_cast<size_t>(base)];
        if (read.base->kind == Base::Kind::Parameter && read.needs_gradient && count > 0)
          adds_in_backward_input_ = true;
      }
    }
    adds_in_forward_ = adds_in_forward_ || step.step->adds_in_forward();
    steps_.push_back(std::move(step));
  }
  find_repeated(operands);
  find_added_in_parts(builder, operands);
}

// A gradient is added as a whole if the block reads the parameter once, in a step that does so.
void GraphBlock::find_added_in_parts(BlockBuilder& builder, const StepOperands& operands) const {
  std::vector<int> uses(bases_.size(), 0);
  for (size_t i = 0; i < steps_.size(); ++i)
    for (const std::vector<Operand>& of_argument : operands[i])
      for (const Operand& operand : of_argument)
        uses[static_cast<size_t>(operand.base)] += steps_[i].step->adds_whole_gradient() ? 1 : 2;
  for (size_t i = 0; i < bases_.size(); ++i)
    if (uses[i] > 1 && bases_[i].base->kind == Base::Kind::Parameter && bases_[i].needs_gradient)
      builder.added_in_parts(bases_[i].param);
}

std::vector<int> GraphBlock::computed_here(std::span<const Operand> operands) const {
  std::vector<int> bases;
  for (const Operand& operand : operands) {
    const BlockBase& base = bases_[static_cast<size_t>(operand.base)];
    if (base.base->kind == Base::Kind::Computed && !base.enters) bases.push_back(operand.base);
  }
  return bases;
}

std::vector<int> GraphBlock::read_in_backward(const BlockStep& step) const {
  std::vector<int> bases = computed_here(step.step->reads());
  if (step.step->reads_output()) bases.push_back(step.output);
  return bases;
}

// A base that a backward part reads is repeated, not kept, if its step is cheap and the operands of the step are available:
// they enter, are no results, or are kept or repeated themselves. Then finds where the repetition has to take place.
void GraphBlock::find_repeated(const StepOperands& operands) {
  std::vector<int> step_of(bases_.size(), -1);
  for (size_t i = 0; i < steps_.size(); ++i) {
    BlockBase& output = bases_[static_cast<size_t>(steps_[i].output)];
    step_of[static_cast<size_t>(steps_[i].output)] = static_cast<int>(i);
    if (!output.kept || !steps_[i].step->is_cheap()) continue;
    const auto is_available = [&](int base) {
      const BlockBase& here = bases_[static_cast<size_t>(base)];
      return here.kept || here.repeated;
    };
    output.repeated = true;
    for (const std::vector<Operand>& of_argument : operands[i]) {
      const std::vector<int> results = computed_here(of_argument);
      output.repeated = output.repeated && std::all_of(results.begin(), results.end(), is_available);
    }
    output.kept = !output.repeated;
  }
  plan_repeats(operands, step_of, &BlockStep::repeated_first, [&](const BlockStep& step) {
    return step.has_backward ? read_in_backward(step) : std::vector<int>();
  });
  plan_repeats(operands, step_of, &BlockStep::repeated_for_weight, [&](const BlockStep& step) {
    return step.has_weight_part ? computed_here(step.step->weight_reads()) : std::vector<int>();
  });
}

// Repeats a step, and those whose results it reads, before the first reader in the order of backward.
template <class ReadBy>
void GraphBlock::plan_repeats(const StepOperands& operands, std::span<const int> step_of,
                              std::vector<int> BlockStep::*repeats, const ReadBy& read_by) {
  std::vector<bool> planned(steps_.size());
  for (auto reader = steps_.rbegin(); reader != steps_.rend(); ++reader) {
    std::set<int> wanted;  // steps; a step reads results of earlier ones only
    const auto want = [&](const std::vector<int>& bases) {
      for (const int base : bases) {
        const int step = step_of[static_cast<size_t>(base)];
        if (!bases_[static_cast<size_t>(base)].repeated || planned[static_cast<size_t>(step)]) continue;
        planned[static_cast<size_t>(step)] = true;
        wanted.insert(step);
      }
    };
    std::vector<int>& steps = (*reader).*repeats;
    want(read_by(*reader));
    while (!wanted.empty()) {
      const int step = *wanted.rbegin();
      wanted.erase(step);
      steps.push_back(step);
      for (const std::vector<Operand>& of_argument : operands[static_cast<size_t>(step)])
        want(computed_here(of_argument));
    }
    std::reverse(steps.begin(), steps.end());
  }
}

// Computes outputs of cheap steps again; their memory lasts until the call of the backward part ends.
void GraphBlock::repeat(Frame& frame, Saved& saved, const std::vector<int>& steps) const {
  Run& run = frame.run;
  for (const int index : steps) {
    const BlockStep& step = steps_[static_cast<size_t>(index)];
    const BlockBase& output = bases_[static_cast<size_t>(step.output)];
    const Tensor memory =
        run.scratch.take(frame.type_of(step.output), {output.base->elements().at(frame.batch)});
    frame.set_value(step.output, memory);
    const Arena::Mark temporaries = run.scratch.mark();
    step.step->forward(frame, saved, memory);
    run.scratch.release(temporaries);
  }
}

Tensor GraphBlock::forward(Run& run, Tensor x, Saved& saved) const {
  if (!is_first_) saved[x_] = x;
  Frame frame(run, bases_, *lowered_, x);
  if (is_last_) frame.loss_weight = loss_weight(frame.batch);
  const int64_t batch = frame.batch;
  Tensor y;
  if (!is_last_) y = run.output().take(run.dtype, {leaving_.at(batch)});
  const auto place = [&](const BlockBase& base) {
    const int64_t begin = base.leaving.at(batch);
    return y.flat(begin, begin + base.base->elements().at(batch));
  };
  for (size_t i = 0; i < bases_.size(); ++i)
    if (bases_[i].kept)
      saved[bases_[i].value] =
          run.keep->take(frame.type_of(static_cast<int>(i)), {bases_[i].base->elements().at(batch)});
  for (const BlockStep& step : steps_) step.step->take_saved(frame, saved);
  const Arena::Mark mark = run.scratch.mark();
  for (const BlockStep& step : steps_) {
    const BlockBase& output = bases_[static_cast<size_t>(step.output)];
    const Tensor memory =
        output.kept     ? saved[output.value]
        : output.leaves ? place(output)
                        : run.scratch.take(frame.type_of(step.output), {output.base->elements().at(batch)});
    frame.set_value(step.output, memory);
    const Arena::Mark temporaries = run.scratch.mark();
    step.step->forward(frame, saved, memory);
    run.scratch.release(temporaries);
    run.show(step.name, "output", memory);
  }
  for (size_t base = 0; base < bases_.size(); ++base)
    if (bases_[base].leaves && (bases_[base].kept || bases_[base].enters))
      run.ops.copy(run.stream, place(bases_[base]), frame.value(static_cast<int>(base)));
  if (is_last_) add_loss(run, frame);
  run.scratch.release(mark);
  return y;
}

// A mean over the micro-batch counts with the number of its samples.
void GraphBlock::add_loss(Run& run, Frame& frame) const {
  const auto add = [&](Tensor to, const Operand& number, double factor) {
    const Tensor total = frame.temporary(DType::F64, {1});
    if (number.exists()) {
      const Tensor single =
          frame.converted(frame.dense(number), frame.type_of(number) == DType::F64 ? DType::F64 : DType::F32);
      run.ops.convert(run.stream, total, single);
    } else {
      run.ops.fill(run.stream, total, 1.0);
    }
    if (factor != 1) run.ops.scale(run.stream, total, factor);
    run.ops.reduce(run.stream, to, total, Reduce::Sum);
  };
  add(run.loss_sum, loss_, frame.loss_weight);
  add(run.weight_sum, count_, frame.loss_weight);
}

// Takes what outlives the call: the gradient of the input, and the gradients that backward_weight reads.
Tensor GraphBlock::take_gradients(Run& run, const Frame& frame, Saved& saved) const {
  Tensor dx;
  if (!is_first_) dx = run.flow->take(run.dtype, {entering_.at(frame.batch)});
  for (size_t i = 0; i < bases_.size(); ++i)
    if (bases_[i].held && !bases_[i].enters)
      saved[bases_[i].gradient] =
          run.flow->take(frame.type_of(static_cast<int>(i)), {bases_[i].base->elements().at(frame.batch)});
  return dx;
}

// Gives every base that needs a gradient its memory; bases that leave begin with the gradient of later blocks.
void GraphBlock::begin_gradients(Run& run, Frame& frame, Tensor dx, Tensor dy, const Saved& saved) const {
  const int64_t batch = frame.batch;
  const auto part = [&](const Tensor& whole, const Size& offset, const BlockBase& base) {
    const int64_t begin = offset.at(batch);
    return whole.flat(begin, begin + base.base->elements().at(batch));
  };
  for (size_t i = 0; i < bases_.size(); ++i) {
    const BlockBase& base = bases_[i];
    if (!base.needs_gradient || base.base->kind != Base::Kind::Computed) continue;
    const Tensor memory =
        base.enters ? part(dx, base.entering, base)
        : base.held ? saved[base.gradient]
                    : run.scratch.take(frame.type_of(static_cast<int>(i)), {base.base->elements().at(batch)});
    frame.set_gradient(static_cast<int>(i), memory, base.leaves);
    if (base.leaves) run.ops.copy(run.stream, memory, part(dy, base.leaving, base));
  }
}

Tensor GraphBlock::backward_input(Run& run, Tensor dy, Saved& saved) const {
  Frame frame(run, bases_, *lowered_, is_first_ ? Tensor{} : saved[x_]);
  const Tensor dx = take_gradients(run, frame, saved);
  const Arena::Mark before = run.scratch.mark();
  begin_gradients(run, frame, dx, dy, saved);
  for (size_t i = 0; i < bases_.size(); ++i)
    if (bases_[i].kept) frame.set_value(static_cast<int>(i), saved[bases_[i].value]);
  if (is_last_) {
    const Tensor seed = frame.gradient_of(loss_.base);
    run.ops.fill(run.stream, seed, loss_weight(frame.batch));
    run.ops.scale(run.stream, seed, run.loss_factor());
    frame.set_gradient(loss_.base, seed, true);
  }
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (!step->has_backward) continue;
    check(frame.begun(step->output), "the result of {} has no gradient", step->name);
    const Tensor gradient = frame.gradient_of(step->output);
    run.show(step->name, "output gradient", gradient);
    repeat(frame, saved, step->repeated_first);
    const Arena::Mark temporaries = run.scratch.mark();
    frame.begin_step(step->output);
    step->step->backward(frame, saved, gradient);
    run.scratch.release(temporaries);
  }
  for (size_t i = 0; i < bases_.size(); ++i)
    if (bases_[i].enters && bases_[i].needs_gradient && !frame.begun(static_cast<int>(i)))
      run.ops.fill(run.stream, frame.gradient_of(static_cast<int>(i)), 0.0);
  run.scratch.release(before);
  return dx;
}

void GraphBlock::backward_weight(Run& run, Saved& saved) const {
  Frame frame(run, bases_, *lowered_, is_first_ ? Tensor{} : saved[x_]);
  const Arena::Mark before = run.scratch.mark();
  for (size_t i = 0; i < bases_.size(); ++i)
    if (bases_[i].kept) frame.set_value(static_cast<int>(i), saved[bases_[i].value]);
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    if (!step->has_weight_part) continue;
    repeat(frame, saved, step->repeated_for_weight);
    const Arena::Mark temporaries = run.scratch.mark();
    frame.begin_step(step->output);
    step->step->backward_weight(frame, saved, saved[bases_[static_cast<size_t>(step->output)].gradient]);
    run.scratch.release(temporaries);
  }
  run.scratch.release(before);
}

}  // namespace trifold::graph
