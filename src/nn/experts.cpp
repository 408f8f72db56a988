#include "nn/experts.h"

namespace trifold {

namespace {

std::optional<CounterId> counter_if(bool wanted, BlockBuilder& builder, const std::string& name,
                                    int64_t count) {
  return wanted ? std::optional<CounterId>(builder.counter(name, count)) : std::nullopt;
}

}  // namespace

Experts::Experts(BlockBuilder& builder, const std::string& name, const ExpertsShape& shape, int64_t width,
                 int64_t ffn, const ActivationForm& activation, Init up, Init down)
    : name_(name),
      router_name_(name + ".router"),
      up_name_(name + ".experts.up"),
      shape_(shape),
      ffn_(ffn / builder.mesh().size(Axis::Etp)),
      activation_(activation),
      parts_(builder.sequence_parallel() ? builder.mesh().size(Axis::Tp) : 1),
      part_(builder.row_part()),
      context_(builder.mesh().size(Axis::Cp)),
      jitter_key_(philox_key(builder.seed(), name + ".router.jitter")),
      random_key_(philox_key(builder.seed(), name + ".router.random")),
      exchange_(builder.mesh().sizes().ranks(kExpertShareAxes) > 1
                    ? std::optional<ExchangedRows>(std::in_place, builder.mesh(), name, shape.experts,
                                                   shape.router.choices, shape.buffer_factor, shape.capacity,
                                                   shape.dispatch)
                    : std::nullopt),
      router_(builder.replicated(name + ".router.weight", {shape.experts, width}, up, true)),
      bias_(shape.selection_bias
                ? std::optional<ParamId>(builder.buffer(name + ".router.bias", {shape.experts}))
                : std::nullopt),
      router_bias_(shape.bias
                       ? std::optional<ParamId>(builder.replicated(
                             name + ".router.logits.bias", {shape.experts}, {Init::Kind::Zeros}, false))
                       : std::nullopt),
      up_(builder,
          activation.gated()
              ? builder.of_experts(name + ".experts.up.weight", {shape.experts, 2, ffn, width}, 2, up, true)
              : builder.of_experts(name + ".experts.up.weight", {shape.experts, ffn, width}, 1, up, true),
          ProductWeight::Cut::Outputs),
      down_(builder,
            builder.of_experts(name + ".experts.down.weight", {shape.experts, width, ffn}, 2, down, true),
            ProductWeight::Cut::Inputs),
      biases_(shape.bias ? std::optional<ExpertBiases>(std::in_place, builder, name + ".experts",
                                                       shape.experts, width, ffn, activation.gated())
                         : std::nullopt),
      balance_(builder.loss_term(ExpertReports::kBalance)),
      z_(builder.loss_term(ExpertReports::kZ)),
      choices_(builder.counter(ExpertReports::kChoices, shape.experts)),
      rounds_(builder.counter(ExpertReports::kRounds, 1)),
      dropped_(counter_if(shape.capacity.factor > 0, builder, ExpertReports::kDropped, 1)),
      preferred_(counter_if(counts_last_batch(), builder, ExpertReports::kPreferred, shape.experts)),
      last_choices_(counts_last_batch() ? std::optional<HostValueId>(
                                              builder.host_value(ExpertReports::kLastChoices, shape.experts))
                                        : std::nullopt),
      x_(builder.slot()),
      logits_(builder.slot()),
      gates_(builder.slot()),
      chosen_(builder.slot()),
      counts_(builder.slot()),
      own_{builder.slot(), builder.slot(), builder.slot()},
      row_counts_(builder.slot()),
      host_counts_(builder.slot()),
      tokens_(builder.slot()),
      here_(exchange_ ? Order{builder.slot(), builder.slot(), builder.slot()} : own_),
      gates_here_(builder.slot()),
      inner_(builder.slot()),
      dy_(builder.slot()),
      dlogits_(builder.slot()),
      dinner_(builder.slot()) {
  check(builder.mesh().size(Axis::Tp) == parts_,
        "{}: {} tensor-parallel ranks would all send the same rows to experts without sequence parallelism",
        name, builder.mesh().size(Axis::Tp));
}

void Experts::activate(Run& run, Tensor a, const Round& round) const {
  run.ops.activate_choices(run.stream, a, round.inner, round.gates, round.row, activation_);
}

void Experts::route_input(Run& run, Tensor x, Saved& saved) const {
  const int64_t tokens = x.row_count();
  const int64_t choices = shape_.router.choices;
  const DType wide = accumulate_type(run.dtype);
  saved[x_] = x;
  saved[logits_] = run.keep->take(wide, {tokens * parts_, shape_.experts});
  saved[gates_] = run.keep->take(wide, {tokens * parts_, choices});
  saved[chosen_] = run.keep->take(DType::I32, {tokens * parts_, choices});
  saved[counts_] = run.keep->take(DType::I32, {balance_groups(run), shape_.experts});
  saved[own_.first] = run.keep->take(DType::I32, {shape_.experts + (drops(run) ? 2 : 1)});
  saved[own_.row] = run.keep->take(DType::I32, {tokens, choices});
  saved[own_.token] = run.keep->take(DType::I32, {tokens * choices});
  const Tensor logits = own_rows(saved[logits_]);
  compute_logits(run, logits, x);
  if (parts_ > 1) run.mesh.comm({Axis::Tp}).all_gather(saved[logits_], logits, run.stream);
  route(run, saved);
  saved[gates_here_] = own_rows(saved[gates_]);
  if (exchange_) {
    const Shape shape{exchange_->ranks(), shape_.experts + 1};
    saved[row_counts_] = run.keep->take(DType::I32, shape);
    saved[host_counts_] =
        run.ops.device == nullptr ? saved[row_counts_] : saved.for_host(DType::I32, shape, run.ops.device);
    exchange_->exchange_counts(run, saved[host_counts_], saved[row_counts_], saved[own_.first]);
    if (exchange_->gathers()) {
      saved[tokens_] = run.keep->take(DType::I32, {exchange_->ranks(), tokens * choices});
      run.exchange([&](Stream& on) {
        run.mesh.comm(kExpertShareAxes).all_gather(saved[tokens_], saved[own_.token], on);
      });
    }
  }
  count_choices(run, saved);
  if (!single_round(run, saved)) return;
  if (!exchange_) {
    saved[inner_] = run.keep->take(run.dtype, {tokens * choices, inner_width()});
    return;
  }
  const Round round = make_round(run, *run.keep, saved, 0);
  saved[here_.first] = round.first;
  saved[here_.row] = round.row;
  saved[here_.token] = round.token;
  saved[gates_here_] = round.gates;
  saved[inner_] = round.inner;
}

bool Experts::single_round(Run& run, const Saved& saved) const {
  return !exchange_ || exchange_->rounds(run, saved[host_counts_]) == 1;
}

Experts::Round Experts::make_round(Run& run, Arena& arena, const Saved& saved, int64_t number) const {
  const DType wide = saved[gates_].dtype;
  const Tensor counts = saved[host_counts_];
  const int64_t rows = exchange_->received_rows(run, counts, saved[x_].row_count(), number);
  Round round;
  round.first = arena.take(DType::I32, {exchange_->local_experts() + 1});
  round.row = arena.take(DType::I32, {rows, 1});
  round.token = arena.take(DType::I32, {rows});
  round.gates = arena.take(wide, {rows, 1});
  round.inner = arena.take(run.dtype, {rows, inner_width()});
  round.number = number;

  const Arena::Mark mark = run.scratch.mark();
  const Tensor expert = run.scratch.take(DType::I32, {rows, 1});
  const Tensor sorted_gates = run.scratch.take(wide, {saved[own_.token].elements(), 1});
  exchange_->find_experts(run, expert, counts, saved[row_counts_], number);
  run.ops.sort_choices(run.stream, round.first, round.row, round.token, expert);
  run.ops.fill(run.stream, sorted_gates, 1.0);
  run.ops.gate_rows(run.stream, sorted_gates, sorted_gates, own_rows(saved[gates_]), saved[own_.row]);
  run.exchange([&](Stream& on) { exchange_->dispatch(run, round.gates, sorted_gates, counts, number, on); });
  run.scratch.release(mark);
  return round;
}

Experts::Round Experts::kept_round(const Saved& saved) const {
  const int64_t experts = exchange_ ? exchange_->local_experts() : shape_.experts;
  return {saved[here_.first].rows(0, experts + 1),
          saved[here_.row],
          saved[here_.token],
          saved[gates_here_],
          saved[inner_],
          saved[dy_],
          saved[dinner_]};
}

// A dry run that measures memory takes both the kept round and a round in scratch, which then has as many rows as its
// limit. A dry run that logs work takes the rounds that its planned rows need.
template <class Body>
void Experts::for_each_round(Run& run, const Saved& saved, Body body) const {
  if (single_round(run, saved)) {
    body(kept_round(saved));
    const bool measures = run.stream.mode() == Stream::Mode::Dry && run.stream.log() == nullptr;
    if (!measures || !exchange_ || !exchange_->may_need_rounds(run, saved[x_].row_count())) return;
  }
  const int64_t rounds = exchange_->rounds(run, saved[host_counts_]);
  for (int64_t number = 0; number < rounds; ++number) {
    const Arena::Mark mark = run.scratch.mark();
    Round round = make_round(run, run.scratch, saved, number);
    round.is_kept = false;
    body(round);
    run.scratch.release(mark);
  }
}

void Experts::gather_rows(Run& run, Tensor rows, Tensor x, Tensor received, const Saved& saved,
                          const Round& round) const {
  const Arena::Mark mark = run.scratch.mark();
  if (received.rank() == 0) received = dispatched(run, run.scratch, x, saved, round);
  run.ops.embedding(run.stream, rows, received, round.token, 0, false);
  run.scratch.release(mark);
}

void Experts::up_product(Run& run, Tensor y, Tensor x, Tensor first, bool forward) const {
  const Arena::Mark mark = run.scratch.mark();
  run.ops.expert_product(run.stream, y, x, up_matrices(up_.read(run)), first, forward);
  run.scratch.release(mark);
}

void Experts::down_product(Run& run, Tensor y, Tensor x, Tensor first, bool forward) const {
  const Arena::Mark mark = run.scratch.mark();
  run.ops.expert_product(run.stream, y, x, down_.read(run), first, forward);
  run.scratch.release(mark);
}

void Experts::compute_inner(Run& run, Tensor rows, Tensor received, const Saved& saved,
                            const Round& round) const {
  gather_rows(run, rows, saved[x_], received, saved, round);
  up_product(run, round.inner, rows, round.first, true);
  if (biases_) biases_->add_up(run, round.inner, round.first);
  if (!exchange_) clear_dropped(run, round.inner, saved);
}

void Experts::compute_dinner(Run& run, Tensor rows, Tensor dgates, const Saved& saved, const Round& round,
                             bool with_down) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor a = take_rows(run, round, ffn_);
  const Tensor da = take_rows(run, round, ffn_);
  run.ops.embedding(run.stream, rows, round.dy, round.token, 0, false);
  down_product(run, da, rows, round.first, false);
  if (!exchange_) clear_dropped(run, da, saved);
  run.ops.activate_choices_backward(run.stream, round.dinner, a, dgates, da, round.inner, round.gates,
                                    round.row, activation_);
  if (biases_) biases_->add_gate_gradients(run, dgates, rows, biased_rows(round));
  if (with_down) add_down_gradient(run, rows, a, round);
  run.scratch.release(mark);
}

void Experts::add_down_gradient(Run& run, Tensor dy, Tensor a, const Round& round) const {
  run.ops.expert_product_weight(run.stream, run.grad(down_.id()), dy, a, round.first,
                                run.adds_to(down_.id()));
  if (biases_) biases_->add_down_gradient(run, dy, biased_rows(round));
}

Tensor Experts::compute_output(Run& run, Tensor y, SharedExpert shared, Saved& saved) const {
  const Tensor sorted = take_sorted(run, saved, y.last_dim());
  const bool overlaps = exchange_ && single_round(run, saved);
  Tensor received, shared_output;
  if (overlaps) {
    received = run.scratch.take(run.dtype, {saved[here_.token].elements(), y.last_dim()});
    shared_output = dispatch_overlapped(run, received, sorted, saved[x_], shared, saved);
  } else {
    if (shared) shared_output = (*shared)();
    yield_for_rounds(run);
  }
  for_each_round(run, saved, [&](const Round& round) {
    const Arena::Mark begin = run.scratch.mark();
    const Tensor rows = rows_of(run, round, sorted);
    const Tensor a = take_rows(run, round, ffn_);
    compute_inner(run, rows, round.is_kept ? received : Tensor{}, saved, round);
    run.show(up_name_, "output", round.inner);
    activate(run, a, round);
    down_product(run, rows, a, round.first, true);
    if (biases_) biases_->add_down(run, rows, biased_rows(round));
    combine(run, sorted, rows, {}, saved, round);
    run.scratch.release(begin);
  });
  clear_dropped(run, sorted, saved);
  run.ops.sum_choices(run.stream, y, sorted, saved[own_.row], false);
  run.show(name_, "output", y);
  return shared_output;
}

Tensor Experts::forward(Run& run, Tensor x, Saved& saved) const {
  const Tensor y = run.keep->take(run.dtype, x.shape);
  route_input(run, x, saved);
  const Arena::Mark mark = run.scratch.mark();
  compute_output(run, y, {}, saved);
  run.scratch.release(mark);
  return y;
}

// In a repeated forward the tensors that `shared` keeps may be in scratch, below the mark, so it is called first.
Tensor Experts::forward_added(Run& run, const ResidualAdd& add, Tensor residual, Tensor x,
                              SharedExpert shared, Saved& saved) const {
  const Tensor sum = run.output().take(run.dtype, x.shape);
  const bool shared_first = run.repeats && shared;
  Tensor shared_output = shared_first ? (*shared)() : Tensor{};
  route_input(run, x, saved);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor y = run.scratch.take(run.dtype, x.shape);
  const Tensor overlapped = compute_output(run, y, shared_first ? SharedExpert{} : shared, saved);
  if (!shared_first) shared_output = overlapped;
  if (shared_output.rank() > 0) run.ops.add(run.stream, y, y, shared_output);
  add.forward_to(run, sum, residual, y, saved);
  run.scratch.release(mark);
  return sum;
}

Tensor Experts::compute_backward(Run& run, Tensor dy, SharedExpert shared, Saved& saved,
                                 bool with_weights) const {
  const Tensor dx = run.flow->take(run.dtype, dy.shape);
  const Tensor dlogits = run.flow->take(run.dtype, saved[logits_].shape);
  saved[dlogits_] = own_rows(dlogits);
  saved[dy_] = dy;
  const bool single = single_round(run, saved);
  if (single) saved[dinner_] = run.flow->take(run.dtype, saved[inner_].shape);
  if (single && exchange_)
    saved[dy_] = run.flow->take(run.dtype, {saved[here_.token].elements(), dy.last_dim()});

  // In a pair the input is dispatched again, for the gradients of weights, while gradients are combined.
  const Arena::Mark outer_mark = run.scratch.mark();
  Tensor received_x;
  if (with_weights && single && exchange_ && run.other_half != nullptr)
    received_x = run.scratch.take(run.dtype, {saved[here_.token].elements(), dy.last_dim()});
  const Arena::Mark mark = run.scratch.mark();
  const Tensor sorted = take_sorted(run, saved, dy.last_dim());
  Tensor dx_shared;
  if (single && exchange_)
    dx_shared = dispatch_overlapped(run, saved[dy_], sorted, dy, shared, saved);
  else if (shared)
    dx_shared = (*shared)();
  if (!single) yield_for_rounds(run);
  const Shape own_shape{saved[own_.token].elements(), 1};
  const Tensor dgates = run.scratch.take(saved[gates_].dtype, own_shape);
  for_each_round(run, saved, [&](Round round) {
    const Arena::Mark begin = run.scratch.mark();
    const Tensor rows = rows_of(run, round, sorted);
    const Tensor dgates_here = exchange_ ? run.scratch.take(dgates.dtype, round.gates.shape) : dgates;
    if (!round.is_kept) {
      compute_inner(run, rows, {}, saved, round);
      round.dinner = run.scratch.take(run.dtype, round.inner.shape);
      round.dy = dispatched(run, run.scratch, dy, saved, round);
    }
    compute_dinner(run, rows, dgates_here, saved, round, with_weights && run.trains(router_));
    std::optional<ExchangedRows::PendingCombine> pending_dgates;
    if (exchange_ && round.is_kept && run.other_half != nullptr)
      pending_dgates = exchange_->start_combine(run, dgates, dgates_here, saved[host_counts_], round.number);
    else if (exchange_)
      exchange_->combine(run, dgates, dgates_here, saved[host_counts_], round.number);
    up_product(run, rows, round.dinner, round.first, false);
    combine(run, sorted, rows, round.is_kept ? received_x : Tensor{}, saved, round);
    if (pending_dgates) exchange_->finish_combine(run, dgates, saved[host_counts_], *pending_dgates);
    run.scratch.release(begin);
  });
  Tensor dgates_of_own = dgates;
  if (exchange_) {  // they are in the order of rows
    clear_dropped(run, dgates, saved);
    dgates_of_own = run.scratch.take(dgates.dtype, own_shape);
    run.ops.embedding(run.stream, dgates_of_own, dgates, saved[own_.row], 0, false);
  }
  const Tensor dgates_of_all = gathered(run, run.scratch, dgates_of_own.reshape(saved[own_.row].shape));
  run.ops.route_backward(run.stream, dlogits, dgates_of_all, saved[gates_], saved[chosen_], saved[logits_],
                         saved[counts_], run.batch->loss_weight.flat(), run.loss_factor(), shape_.losses,
                         shape_.router);
  run.show(router_name_, "gradient of the output", saved[dlogits_]);
  run.ops.gemm(run.stream, dx, saved[dlogits_], false, run.weight(router_), false, 1, 0);
  if (jitters(run)) jitter(run, dx, dx);
  clear_dropped(run, sorted, saved);
  run.ops.sum_choices(run.stream, dx, sorted, saved[own_.row], true);
  if (dx_shared.rank() > 0) run.ops.add(run.stream, dx, dx, dx_shared);
  run.scratch.release(mark);
  run.show(name_, "input gradient", dx);
  if (with_weights) add_gradients(run, received_x, saved, false);
  run.scratch.release(outer_mark);
  return dx;
}

void Experts::add_gradients(Run& run, Tensor received, Saved& saved, bool with_down) const {
  if (!run.trains(router_)) return;
  const Tensor x = saved[x_];
  const Arena::Mark begin = run.scratch.mark();
  run.ops.gemm(run.stream, run.grad(router_), saved[dlogits_], true, router_input(run, x), false, 1,
               run.adds_to(router_) ? 1 : 0);
  if (router_bias_)
    run.ops.column_sum(run.stream, run.grad(*router_bias_), saved[dlogits_], run.adds_to(*router_bias_));
  run.scratch.release(begin);
  for_each_round(run, saved, [&](Round round) {
    const Arena::Mark mark = run.scratch.mark();
    const Tensor rows = take_rows(run, round, x.last_dim());
    if (!round.is_kept) {
      const Tensor dgates = run.scratch.take(round.gates.dtype, round.gates.shape);
      round.dinner = run.scratch.take(run.dtype, round.inner.shape);
      round.dy = dispatched(run, run.scratch, saved[dy_], saved, round);
      compute_inner(run, rows, {}, saved, round);
      compute_dinner(run, rows, dgates, saved, round, with_down);
    }
    gather_rows(run, rows, x, round.is_kept ? received : Tensor{}, saved, round);
    run.ops.expert_product_weight(run.stream, up_matrices(run.grad(up_.id())), round.dinner, rows,
                                  round.first, run.adds_to(up_.id()));
    if (biases_) biases_->add_up_gradient(run, round.dinner, round.first);
    if (with_down && round.is_kept) {
      const Tensor a = take_rows(run, round, ffn_);
      activate(run, a, round);
      run.ops.embedding(run.stream, rows, round.dy, round.token, 0, false);
      add_down_gradient(run, rows, a, round);
    }
    run.scratch.release(mark);
  });
}

}  // namespace trifold
