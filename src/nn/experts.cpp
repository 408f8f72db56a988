#include "nn/experts.h"

namespace trifold {

namespace {

std::optional<CounterId> counter_if(bool wanted, BlockBuilder& builder, const std::string& name,
                                    int64_t count) {
  return wanted ? std::optional<CounterId>(builder.counter(name, count)) : std::nullopt;
}

}  // namespace

Experts::Experts(BlockBuilder& builder, const std::string& name, const ExpertsShape& shape, int64_t width,
                 int64_t ffn, ActivationKind activation, Init up, Init down)
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
                ? std::optional<ParamId>(builder.counted(name + ".router.bias", {shape.experts}))
                : std::nullopt),
      up_(activation == ActivationKind::Swiglu
              ? builder.of_experts(name + ".experts.up.weight", {shape.experts, 2, ffn, width}, 2, up, true)
              : builder.of_experts(name + ".experts.up.weight", {shape.experts, ffn, width}, 1, up, true)),
      down_(builder.of_experts(name + ".experts.down.weight", {shape.experts, width, ffn}, 2, down, true)),
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
      firsts_(builder.slot()),
      arriving_(builder.slot()),
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

void Experts::activate(Run& run, Tensor to, const Part& part) const {
  (run.ops.*activation_ops(activation_).forward)(run.stream, to, part.inner);
}

void Experts::take_kept(Run& run, Tensor x, Saved& saved) const {
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
  const Tensor logits = own(saved[logits_]);
  compute_logits(run, logits, x);
  if (parts_ > 1) run.mesh.comm({Axis::Tp}).all_gather(saved[logits_], logits, run.stream);
  route(run, saved);
  saved[gates_here_] = own(saved[gates_]);
  if (exchange_) {
    const Shape firsts{exchange_->ranks(), shape_.experts + 1};
    saved[firsts_] = run.keep->take(DType::I32, firsts);
    saved[arriving_] =
        run.ops.device == nullptr ? saved[firsts_] : saved.for_host(DType::I32, firsts, run.ops.device);
    exchange_->exchange_counts(run, saved[arriving_], saved[firsts_], saved[own_.first]);
    if (exchange_->gathers()) {
      saved[tokens_] = run.keep->take(DType::I32, {exchange_->ranks(), tokens * choices});
      run.exchange([&](Stream& on) {
        run.mesh.comm(kExpertShareAxes).all_gather(saved[tokens_], saved[own_.token], on);
      });
    }
  }
  count(run, saved);
  if (!at_once(run, saved)) return;
  if (!exchange_) {
    saved[inner_] = run.keep->take(run.dtype, {tokens * choices, inner_width()});
    return;
  }
  const Part part = arriving(run, *run.keep, saved, 0);
  saved[here_.first] = part.first;
  saved[here_.row] = part.row;
  saved[here_.token] = part.token;
  saved[gates_here_] = part.gates;
  saved[inner_] = part.inner;
}

bool Experts::at_once(Run& run, const Saved& saved) const {
  return !exchange_ || exchange_->rounds(run, saved[arriving_]) == 1;
}

Experts::Part Experts::arriving(Run& run, Arena& arena, const Saved& saved, int64_t round) const {
  const DType wide = saved[gates_].dtype;
  const Tensor counts = saved[arriving_];
  const int64_t rows = exchange_->rows_arriving(run, counts, saved[x_].row_count(), round);
  Part part;
  part.first = arena.take(DType::I32, {exchange_->experts_here() + 1});
  part.row = arena.take(DType::I32, {rows, 1});
  part.token = arena.take(DType::I32, {rows});
  part.gates = arena.take(wide, {rows, 1});
  part.inner = arena.take(run.dtype, {rows, inner_width()});
  part.round = round;

  const Arena::Mark mark = run.scratch.mark();
  const Tensor expert = run.scratch.take(DType::I32, {rows, 1});
  const Tensor sorted_gates = run.scratch.take(wide, {saved[own_.token].elements(), 1});
  exchange_->find_experts(run, expert, counts, saved[firsts_], round);
  run.ops.sort_choices(run.stream, part.first, part.row, part.token, expert);
  run.ops.fill(run.stream, sorted_gates, 1.0);
  run.ops.gate_rows(run.stream, sorted_gates, sorted_gates, own(saved[gates_]), saved[own_.row]);
  run.exchange([&](Stream& on) { exchange_->send(run, part.gates, sorted_gates, counts, round, on); });
  run.scratch.release(mark);
  return part;
}

Experts::Part Experts::kept(const Saved& saved) const {
  const int64_t experts = exchange_ ? exchange_->experts_here() : shape_.experts;
  return {saved[here_.first].rows(0, experts + 1),
          saved[here_.row],
          saved[here_.token],
          saved[gates_here_],
          saved[inner_],
          saved[dy_],
          saved[dinner_]};
}

// A dry run takes the memory of either way: rounds are of as many rows as there is memory for. One that counts work goes
// the way that its rows take.
template <class Body>
void Experts::for_each_part(Run& run, const Saved& saved, Body body) const {
  if (at_once(run, saved)) {
    body(kept(saved));
    const bool measures = run.stream.mode() == Stream::Mode::Dry && run.stream.log() == nullptr;
    if (!measures || !exchange_ || !exchange_->may_need_rounds(run, saved[x_].row_count())) return;
  }
  const int64_t rounds = exchange_->rounds(run, saved[arriving_]);
  for (int64_t round = 0; round < rounds; ++round) {
    const Arena::Mark mark = run.scratch.mark();
    Part part = arriving(run, run.scratch, saved, round);
    part.kept = false;
    body(part);
    run.scratch.release(mark);
  }
}

void Experts::take_in(Run& run, Tensor rows, Tensor x, Tensor arrived, const Saved& saved,
                      const Part& part) const {
  const Arena::Mark mark = run.scratch.mark();
  if (arrived.rank() == 0) arrived = dispatched(run, run.scratch, x, saved, part);
  run.ops.embedding(run.stream, rows, arrived, part.token, 0, false);
  run.scratch.release(mark);
}

void Experts::compute_inner(Run& run, Tensor rows, Tensor arrived, const Saved& saved,
                            const Part& part) const {
  take_in(run, rows, saved[x_], arrived, saved, part);
  run.ops.expert_product(run.stream, part.inner, rows, up_matrices(run.weight(up_)), part.first, true);
  if (!exchange_) clear_dropped(run, part.inner, saved);
}

void Experts::compute_dinner(Run& run, Tensor rows, Tensor dgates, const Saved& saved,
                             const Part& part) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor a = take_rows(run, part, ffn_);
  const Tensor da = take_rows(run, part, ffn_);
  run.ops.embedding(run.stream, rows, part.dy, part.token, 0, false);
  run.ops.expert_product(run.stream, da, rows, run.weight(down_), part.first, false);
  if (!exchange_) clear_dropped(run, da, saved);
  activate(run, a, part);
  run.ops.gate_rows_backward(run.stream, da, dgates, da, a, part.gates, part.row);
  (run.ops.*activation_ops(activation_).backward)(run.stream, part.dinner, da, part.inner);
  run.scratch.release(mark);
}

Tensor Experts::mix(Run& run, Tensor y, Beside beside, Saved& saved) const {
  const Tensor sorted = take_sorted(run, saved, y.last_dim());
  const bool travels = exchange_ && at_once(run, saved);
  Tensor arrived, plus;
  if (travels) {
    arrived = run.scratch.take(run.dtype, {saved[here_.token].elements(), y.last_dim()});
    plus = send_beside(run, arrived, sorted, saved[x_], beside, saved);
  } else {
    if (beside) plus = (*beside)();
    take_turns(run);
  }
  for_each_part(run, saved, [&](const Part& part) {
    const Arena::Mark begin = run.scratch.mark();
    const Tensor rows = rows_of(run, part, sorted);
    const Tensor a = take_rows(run, part, ffn_);
    compute_inner(run, rows, part.kept ? arrived : Tensor{}, saved, part);
    run.show(up_name_, "output", part.inner);
    activate(run, a, part);
    run.ops.gate_rows(run.stream, a, a, part.gates, part.row);
    run.ops.expert_product(run.stream, rows, a, run.weight(down_), part.first, true);
    give_back(run, sorted, rows, {}, saved, part);
    run.scratch.release(begin);
  });
  clear_dropped(run, sorted, saved);
  run.ops.sum_choices(run.stream, y, sorted, saved[own_.row], false);
  run.show(name_, "output", y);
  return plus;
}

Tensor Experts::forward(Run& run, Tensor x, Saved& saved) const {
  const Tensor y = run.keep->take(run.dtype, x.shape);
  take_kept(run, x, saved);
  const Arena::Mark mark = run.scratch.mark();
  mix(run, y, {}, saved);
  run.scratch.release(mark);
  return y;
}

// In a recomputed forward the tensors that `beside` keeps may be in scratch and must stay there, so it is called first.
Tensor Experts::forward_added(Run& run, const DropoutAdd& add, Tensor residual, Tensor x, Beside beside,
                              Saved& saved) const {
  const Tensor sum = run.output().take(run.dtype, x.shape);
  const bool first = run.repeats && beside;
  Tensor plus = first ? (*beside)() : Tensor{};
  take_kept(run, x, saved);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor y = run.scratch.take(run.dtype, x.shape);
  const Tensor other = mix(run, y, first ? Beside{} : beside, saved);
  if (!first) plus = other;
  if (plus.rank() > 0) run.ops.add(run.stream, y, y, plus);
  add.forward_to(run, sum, residual, y);
  run.scratch.release(mark);
  return sum;
}

Tensor Experts::walk_back(Run& run, Tensor dy, Beside beside, Saved& saved, bool with_weights) const {
  const Tensor dx = run.flow->take(run.dtype, dy.shape);
  const Tensor dlogits = run.flow->take(run.dtype, saved[logits_].shape);
  saved[dlogits_] = own(dlogits);
  saved[dy_] = dy;
  const bool once = at_once(run, saved);
  if (once) saved[dinner_] = run.flow->take(run.dtype, saved[inner_].shape);
  if (once && exchange_)
    saved[dy_] = run.flow->take(run.dtype, {saved[here_.token].elements(), dy.last_dim()});

  // In a pair the input travels for the weights when the gradients go back.
  const Arena::Mark begin_of_all = run.scratch.mark();
  Tensor again;
  if (with_weights && once && exchange_ && run.other_half != nullptr)
    again = run.scratch.take(run.dtype, {saved[here_.token].elements(), dy.last_dim()});
  const Arena::Mark mark = run.scratch.mark();
  const Tensor sorted = take_sorted(run, saved, dy.last_dim());
  Tensor more;
  if (once && exchange_)
    more = send_beside(run, saved[dy_], sorted, dy, beside, saved);
  else if (beside)
    more = (*beside)();
  if (!once) take_turns(run);
  const Shape of_choices{saved[own_.token].elements(), 1};
  const Tensor dgates = run.scratch.take(saved[gates_].dtype, of_choices);
  for_each_part(run, saved, [&](Part part) {
    const Arena::Mark begin = run.scratch.mark();
    const Tensor rows = rows_of(run, part, sorted);
    const Tensor dgates_here = exchange_ ? run.scratch.take(dgates.dtype, part.gates.shape) : dgates;
    if (!part.kept) {
      compute_inner(run, rows, {}, saved, part);
      part.dinner = run.scratch.take(run.dtype, part.inner.shape);
      part.dy = dispatched(run, run.scratch, dy, saved, part);
    }
    compute_dinner(run, rows, dgates_here, saved, part);
    std::optional<ExchangedRows::Returning> gates;
    if (exchange_ && part.kept && run.other_half != nullptr)
      gates = exchange_->start_back(run, dgates, dgates_here, saved[arriving_], part.round);
    else if (exchange_)
      exchange_->send_back(run, dgates, dgates_here, saved[arriving_], part.round);
    run.ops.expert_product(run.stream, rows, part.dinner, up_matrices(run.weight(up_)), part.first, false);
    give_back(run, sorted, rows, part.kept ? again : Tensor{}, saved, part);
    if (gates) exchange_->end_back(run, dgates, saved[arriving_], *gates);
    run.scratch.release(begin);
  });
  Tensor dgates_of_own = dgates;
  if (exchange_) {  // they came back in the order of rows
    clear_dropped(run, dgates, saved);
    dgates_of_own = run.scratch.take(dgates.dtype, of_choices);
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
  if (more.rank() > 0) run.ops.add(run.stream, dx, dx, more);
  run.scratch.release(mark);
  run.show(name_, "input gradient", dx);
  if (with_weights) add_gradients(run, again, saved);
  run.scratch.release(begin_of_all);
  return dx;
}

void Experts::add_gradients(Run& run, Tensor again, Saved& saved) const {
  const Tensor x = saved[x_];
  const Arena::Mark begin = run.scratch.mark();
  run.ops.gemm(run.stream, run.grad(router_), saved[dlogits_], true, router_input(run, x), false, 1,
               run.adds_to(router_) ? 1 : 0);
  run.scratch.release(begin);
  for_each_part(run, saved, [&](Part part) {
    const Arena::Mark mark = run.scratch.mark();
    const Tensor rows = take_rows(run, part, x.last_dim());
    const Tensor a = take_rows(run, part, ffn_);
    if (!part.kept) {
      const Tensor dgates = run.scratch.take(part.gates.dtype, part.gates.shape);
      part.dinner = run.scratch.take(run.dtype, part.inner.shape);
      part.dy = dispatched(run, run.scratch, saved[dy_], saved, part);
      compute_inner(run, rows, {}, saved, part);
      compute_dinner(run, rows, dgates, saved, part);
    }
    take_in(run, rows, x, part.kept ? again : Tensor{}, saved, part);
    run.ops.expert_product_weight(run.stream, up_matrices(run.grad(up_)), part.dinner, rows, part.first,
                                  run.adds_to(up_));
    activate(run, a, part);
    run.ops.gate_rows(run.stream, a, a, part.gates, part.row);
    run.ops.embedding(run.stream, rows, part.dy, part.token, 0, false);
    run.ops.expert_product_weight(run.stream, run.grad(down_), rows, a, part.first, run.adds_to(down_));
    run.scratch.release(mark);
  });
}

}  // namespace trifold
