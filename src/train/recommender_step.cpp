// The step of a recommender: what each action of its plan does.
#include <cmath>
#include <cstring>

#include "ops/host_copy.h"
#include "train/overlap_check.h"
#include "train/ranks.h"
#include "train/recommender.h"

namespace trifold {

namespace {

// What is measured together with an action; nothing of those that only wait, or that mark themselves.
std::optional<StepPart> part_of(const Action& action) {
  switch (action.kind) {
    case ActionKind::Lookup:
      return StepPart::Lookups;
    case ActionKind::F:
      return action.stage == Dlrm::kBottom ? StepPart::Bottom : StepPart::Top;
    case ActionKind::I:
      return StepPart::Top;
    case ActionKind::W:
    case ActionKind::B:
    case ActionKind::ReduceGrad:
      return StepPart::WeightGradients;
    case ActionKind::UpdateRows:
      return StepPart::Update;
    case ActionKind::Step:
      return StepPart::DenseUpdate;
    default:
      return std::nullopt;
  }
}

}  // namespace

void Recommender::forward(const Action& action, StepState& state) {
  Run& run = state.run;
  weights_.enter(action.stage, compute_);
  if (action.stage == Dlrm::kBottom)
    return model_.bottom(run, state.features, state.fetched.dense, state.saved);
  state.logits = model_.top(run, state.features, state.saved);
  if (state.real == 0) return;  // these are only scored
  const Tensor losses = run.keep.take(setup_.dtype, state.logits.shape);
  run.ops.fill(run.stream, run.loss_sum, 0);
  run.ops.click_loss(run.stream, losses, state.logits, state.fetched.labels, setup_.loss);
  run.show("samples", "losses", losses);
  run.ops.weighted_sum(run.stream, run.loss_sum, losses.flat(), state.fetched.weights);
  state.summed = run.stream.record();
}

void Recommender::top_backward(StepState& state) {
  const Tensor dlogits = state.run.flow.take(setup_.dtype, state.logits.shape);
  ops_.click_loss_backward(compute_, dlogits, state.logits, state.fetched.labels, state.fetched.weights,
                           state.loss_scale, setup_.loss);
  state.dfeatures = model_.top_backward_input(state.run, dlogits, state.saved);
}

double Recommender::mean_loss(const StepState& state) {
  Stream host = compute_.host();
  host.wait(state.summed);
  const Tensor sum = sums_.tensor(DType::F64, {1});
  world_.all_reduce(sum, Reduce::Sum, host);
  return *sum.as<double>() / static_cast<double>(state.real);
}

double Recommender::norm_of_gradients() {
  grads_.finish(compute_);
  ExactSum squares;
  norm_->add_squares(squares, compute_);
  return norm_->norms({&squares, 1}, compute_).front();
}

void Recommender::execute(const Action& action, StepState& state) {
  const std::optional<StepPart> part = part_of(action);
  if (part) mark(*part, true);
  const LookupBatch& lookups = *state.fetched.lookups;
  switch (action.kind) {
    case ActionKind::Read:
      if (state.next != nullptr && *state.next) (*state.next)();
      break;
    case ActionKind::Lookup:
      state.features = state.run.keep.take(setup_.dtype, {samples_, setup_.model.features()});
      tables_->forward(lookups, state.features);
      break;
    case ActionKind::F:
      forward(action, state);
      break;
    case ActionKind::Collect:
      tables_->finish_forward(lookups, state.features);
      state.run.show("tables", "vectors", state.features);
      break;
    case ActionKind::I:  // adds to the gradients of biases
      grads_.open(action.stage, compute_);
      top_backward(state);
      break;
    case ActionKind::Return:
      tables_->backward(lookups, state.dfeatures);
      break;
    case ActionKind::W:
      model_.top_backward_weight(state.run, state.saved);
      break;
    case ActionKind::B:
      grads_.open(action.stage, compute_);
      model_.bottom_backward(state.run, state.dfeatures, state.saved);
      break;
    case ActionKind::ReduceGrad:
      grads_.reduce(action.stage, compute_);
      break;
    case ActionKind::Loss:
      state.loss = mean_loss(state);
      if (!std::isfinite(state.loss)) explain(state);
      break;
    case ActionKind::Norm:
      grad_norm_ = norm_of_gradients();
      if (!std::isfinite(grad_norm_)) explain(state);
      break;
    case ActionKind::UpdateRows:
      tables_->update(lookups, state.dfeatures, state.rule);
      break;
    case ActionKind::Step:
      if (!norm_) grads_.finish(compute_);
      optimizer_.step(0, {state.dense_lr, state.rule.step, clip_factor(grad_norm_, setup_.clip_grad)},
                      compute_);
      break;
    default:
      fail("a recommender has no way to do {}", to_string(action));
  }
  if (part) mark(*part, false);
}

Recommender::StepState Recommender::state_of(const StepState& other) {
  arenas_.keep.reset();
  arenas_.flow.reset();
  StepState state{other.fetched, run_with(compute_, arenas_), Saved(model_.slots())};
  state.real = other.real;
  state.rule = other.rule;
  state.loss_scale = other.loss_scale;
  return state;
}

void Recommender::repeat(StepState& again, ActionKind end, FunctionRef<void()> after) {
  grads_.restart(compute_);
  for (const Action& action : row_) {
    if (action.kind == end) break;
    if (action.kind == ActionKind::Read) continue;
    execute(action, again);
    after();
  }
  grads_.finish(compute_);
}

// Memory is taken in the same order, so what is left for the update lies where it lay.
void Recommender::repeat_without_overlap(StepState& state) {
  grads_.finish(compute_);
  const OverlapCheck before(ops_, compute_, layout_, grads_, {state.loss, 1});
  const HostCopy vectors(ops_, compute_, state.dfeatures);
  const Buffer kept(state.dfeatures.bytes());
  std::memcpy(kept.data(), vectors.tensor().data, kept.bytes());
  synchronize();
  StepState again = state_of(state);
  repeat(again, ActionKind::UpdateRows, [this] { synchronize(); });
  const std::string step = fmt::format("step {}", state.rule.step);
  before.compare({again.loss, 1}, step);
  const HostCopy now(ops_, compute_, again.dfeatures);
  check(std::memcmp(kept.data(), now.tensor().data, kept.bytes()) == 0,
        "{}, computed once with overlap and once without: the gradients of the features differ: ranks or "
        "streams raced",
        step);
  state.features = again.features;
  state.logits = again.logits;
  state.dfeatures = again.dfeatures;
  ++checked_;
}

double Recommender::train(int64_t real, int64_t step, double dense_lr, double sparse_lr,
                          const std::function<void()>& next) {
  check(real >= 1, "step {}: there is no real sample in the global batch", step);
  double loss = 0;
  abort_on_error(world_, [&] {
    Fetched& fetched = oldest();
    arenas_.keep.reset();
    arenas_.flow.reset();
    StepState state{fetched, run_with(compute_, arenas_), Saved(model_.slots())};
    state.next = &next;
    state.real = real;
    state.dense_lr = dense_lr;
    state.rule = setup_.sparse;
    state.rule.lr = sparse_lr;
    state.rule.step = step;
    const double scale = 1.0 / static_cast<double>(real);
    numbers_.send(compute_,
                  [&](int64_t row) { return row == 0 ? numbers_of(state.rule) : RuleNumbers{scale}; });
    state.rule.numbers = numbers_.row(0);
    const Tensor late_scale = numbers_.row(1);
    state.loss_scale = late_scale.data != nullptr ? Factor(1, late_scale.rows(0, 1)) : Factor(scale);
    grads_.restart(compute_);
    for (const Action& action : row_) {
      if (action.kind == ActionKind::UpdateRows && checked_ < setup_.check_overlap)
        repeat_without_overlap(state);
      execute(action, state);
    }
    fetched.used = compute_.record();
    loss = state.loss;
  });
  return loss;
}

Recommender::Scored Recommender::score() {
  Scored scored{};
  abort_on_error(world_, [&] {
    Fetched& fetched = oldest();
    arenas_.keep.reset();
    StepState state{fetched, run_with(compute_, arenas_), Saved(model_.slots())};
    for (const Action& action : row_)
      if (action.kind == ActionKind::Lookup || action.kind == ActionKind::F ||
          action.kind == ActionKind::Collect)
        execute(action, state);
    scored = {state.logits, &fetched.clicks.batch()};
    if (ops_.device != nullptr) {
      const Tensor host = logits_.tensor(setup_.dtype, scored.logits.shape);
      ops_.copy(compute_, host, scored.logits);
      scored.logits = host;
    }
    compute_.synchronize();
    fetched.used = {};
  });
  return scored;
}

}  // namespace trifold
