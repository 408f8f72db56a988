// The step of a recommender: the implementation of each action of its plan.
#include <cmath>
#include <cstring>

#include "ops/host_copy.h"
#include "recommend/recommender.h"
#include "run/checks/overlap_check.h"
#include "run/checks/replica_check.h"
#include "run/ranks.h"

namespace trifold {

std::optional<StepPart> part_of(const Action& action, const TableStepShape& step) {
  switch (action.kind) {
    case ActionKind::Read:
      return StepPart::Fetch;
    case ActionKind::Lookup:
      return StepPart::Lookups;
    case ActionKind::Collect:
      return StepPart::Vectors;
    case ActionKind::F:
      return action.stage == step.top() ? StepPart::Top : StepPart::Bottom;
    case ActionKind::I:
      return StepPart::Top;
    case ActionKind::Return:
      return StepPart::Gradients;
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

// Calls the setup's marks at the parts of a step; on a device each waits for work in flight.
class Recommender::Marks final : public StepWatch {
 public:
  Marks(Recommender& model, StepWatch* inner) : StepWatch(inner), model_(model) {}
  void before(const Action& action) override {
    StepWatch::before(action);
    mark(action, true);
  }
  void after(const Action& action) override {
    mark(action, false);
    StepWatch::after(action);
  }

 private:
  void mark(const Action& action, bool begins) {
    using enum StepPart;
    const std::optional<StepPart> part = part_of(action, step_shape(model_.setup_));
    if (!part || part == Fetch || part == Vectors || part == Gradients) return;  // these mark themselves
    model_.compute_.synchronize();
    model_.setup_.marks(*part, begins);
  }

  Recommender& model_;
};

double Recommender::mean_loss(const StepState& state) {
  Stream host = compute_.host();
  host.wait(state.fetched.summed);
  double sum = *executor_->losses().as<double>();
  world_.all_reduce({&sum, DType::F64, {1}}, Reduce::Sum, host);
  return sum / static_cast<double>(state.real);
}

double Recommender::norm_of_gradients() {
  grads_.finish(compute_);
  ExactSum squares;
  norm_->add_squares(squares, compute_);
  return norm_->norms({&squares, 1}, compute_).front();
}

template <class Body>
void Recommender::for_each_group(const Fetched& fetched, Body body) {
  const DlrmBatch& rows = fetched.rows;
  const bool places = !setup_.model.places.empty();
  for (size_t g = 0; g < groups_of_tables_.size(); ++g)
    body(*groups_of_tables_[g]->tables, *fetched.lookups[g], places ? rows.looked_up[g] : rows.features,
         !places || rows.looked_up_gradients.empty() ? rows.feature_gradients : rows.looked_up_gradients[g]);
}

void Recommender::execute(const Action& action, StepState& state) {
  switch (action.kind) {
    case ActionKind::Read:
      if (state.next != nullptr && *state.next) (*state.next)();
      break;
    case ActionKind::Lookup:
      for_each_group(state.fetched,
                     [](EmbeddingTables& tables, const LookupBatch& lookups, const Tensor& vectors,
                        const Tensor&) { tables.forward(lookups, vectors); });
      break;
    case ActionKind::Collect:
      for_each_group(state.fetched, [&](EmbeddingTables& tables, const LookupBatch& lookups,
                                        const Tensor& vectors, const Tensor&) {
        tables.finish_forward(lookups, vectors);
        if (state.watch != nullptr) state.watch->see("tables", "vectors", vectors, compute_);
      });
      break;
    case ActionKind::Return:
      for_each_group(state.fetched, [](EmbeddingTables& tables, const LookupBatch& lookups, const Tensor&,
                                       const Tensor& gradients) { tables.backward(lookups, gradients); });
      break;
    case ActionKind::Loss:
      state.loss = mean_loss(state);
      break;
    case ActionKind::Norm:
      grad_norm_ = norm_of_gradients();
      break;
    case ActionKind::UpdateRows:
      for_each_group(state.fetched,
                     [&](EmbeddingTables& tables, const LookupBatch& lookups, const Tensor&,
                         const Tensor& gradients) { tables.update(lookups, gradients, state.rule); });
      break;
    case ActionKind::Step:
      if (!norm_) grads_.finish(compute_);
      optimizer_.step(0, {state.dense_lr, state.rule.step, clip_factor(grad_norm_, setup_.clip_grad)},
                      compute_);
      if (setup_.model.batch_norm) update_statistics(state.real);
      break;
    default:
      fail("a recommender cannot run the action {}", to_string(action));
  }
}

Batch Recommender::batch_of(const StepState& state) const {
  Batch batch;
  batch.tokens = {nullptr, DType::I32, {samples_, 1}};
  batch.first_sample = state.first_sample;
  batch.loss_factors = numbers_.row(1);
  batch.part = &state.fetched.rows;
  return batch;
}

void Recommender::run(const RankPlan& row, StepState& state) {
  const double scale = 1.0 / static_cast<double>(state.real);
  const auto batch = [&](int) { return batch_of(state); };
  const auto others = [&](const Action& action) { execute(action, state); };
  executor_->enqueue(row, {setup_.seed, scale, true, batch, others, 0, state.watch});
}

Recommender::StepState Recommender::repeat(const StepState& state, StepWatch& watch) {
  StepState again = state;
  again.next = nullptr;
  again.watch = &watch;
  grads_.restart(compute_);
  run(gradients_row_, again);
  grads_.finish(compute_);
  return again;
}

void Recommender::repeat_without_overlap(const StepState& state) {
  grads_.finish(compute_);
  const OverlapCheck before(ops_, compute_, layout_, grads_, {state.loss, 1});
  const DlrmBatch& rows = state.fetched.rows;
  std::vector<Tensor> gradients = rows.looked_up_gradients;
  gradients.push_back(rows.feature_gradients);
  std::vector<Buffer> kept;
  for (const Tensor& of : gradients) {
    const HostCopy vectors(ops_, compute_, of);
    kept.emplace_back(of.bytes());
    std::memcpy(kept.back().data(), vectors.tensor().data, of.bytes());
  }
  synchronize();
  OneByOne watch(streams(), state.watch);
  const StepState again = repeat(state, watch);
  const std::string step = fmt::format("step {}", state.step);
  before.compare({again.loss, 1}, step);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const HostCopy now(ops_, compute_, gradients[i]);
    check(std::memcmp(kept[i].data(), now.tensor().data, kept[i].bytes()) == 0,
          "{}, computed once with overlap and once without: the gradients of the features differ: ranks or "
          "streams raced",
          step);
  }
  ++checked_;
}

double Recommender::train(int64_t real, int64_t step, double dense_lr, double sparse_lr,
                          const std::function<void()>& next) {
  check(real >= 1, "step {}: there is no real sample in the global batch", step);
  double loss = 0;
  abort_on_error(world_, [&] {
    Marks marks(*this, watch_);
    StepState state{.fetched = oldest(),
                    .next = &next,
                    .real = real,
                    .step = step,
                    .dense_lr = dense_lr,
                    .first_sample = (step - 1) * setup_.global_batch + world_.rank() * samples_,
                    .watch = setup_.marks ? &marks : watch_};
    begin_rows(state.fetched);
    state.rule = setup_.sparse;
    state.rule.lr = sparse_lr;
    state.rule.step = updates_before_ + step;
    const double scale = 1.0 / static_cast<double>(real);
    numbers_.send(compute_,
                  [&](int64_t row) { return row == 0 ? numbers_of(state.rule) : RuleNumbers{scale}; });
    state.rule.numbers = numbers_.row(0);
    grads_.restart(compute_);
    run(gradients_row_, state);
    if (!std::isfinite(state.loss) || !std::isfinite(grad_norm_)) explain(state);
    if (checked_ < setup_.check_overlap) repeat_without_overlap(state);
    if (setup_.zero_stage > 0 && setup_.check_replicas > 0 && step % setup_.check_replicas == 0)
      compare_copies(world_, ops_, compute_,
                     held_copies(mesh_, layout_, weights_, optimizer_, grads_, compute_),
                     fmt::format("step {}, before its update", step));
    run(update_row_, state);
    state.fetched.used = compute_.record();
    loss = state.loss;
  });
  return loss;
}

// On the host, where the logits are.
void Recommender::shift(const Tensor& logits, double offset) {
  dispatch_wide_float(logits.dtype, [&]<class T>(T) {
    auto* const values = logits.as<T>();
    for (int64_t i = 0; i < logits.elements(); ++i)
      values[i] = static_cast<T>(static_cast<double>(values[i]) + offset);
  });
}

Recommender::Scored Recommender::score() {
  Scored scored{};
  abort_on_error(world_, [&] {
    StepState state{.fetched = oldest()};
    const auto others = [&](const Action& action) { execute(action, state); };
    executor_->evaluate(batch_of(state), nullptr, others);
    if (setup_.logit_offset != 0) shift(state.fetched.rows.scores, setup_.logit_offset);
    scored = {state.fetched.rows.scores, &state.fetched.clicks.batch()};
    state.fetched.used = {};
  });
  return scored;
}

}  // namespace trifold
