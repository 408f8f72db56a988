// How rows of a mixture of experts travel to their experts and back, and what is computed meanwhile.
#include "nn/experts.h"

namespace trifold {

Tensor Experts::start_dispatch(Run& run, Tensor arrived, Tensor sorted, Tensor x, const Saved& saved,
                               int64_t round, Stream& on) const {
  if (exchange_->gathers()) return exchange_->gather(run, x, on);
  run.ops.embedding(run.stream, sorted, x, saved[own_.token], 0, false);
  exchange_->send(run, arrived, sorted, saved[arriving_], round, on);
  return {};
}

Tensor Experts::send_beside(Run& run, Tensor arrived, Tensor sorted, Tensor x, Beside beside,
                            const Saved& saved) const {
  Stream& on = beside && run.other_half == nullptr ? run.side : run.exchanges();
  const Arena::Mark mark = run.scratch.mark();
  const Tensor gathered = start_dispatch(run, arrived, sorted, x, saved, 0, on);
  const Event arrive = run.end_of(on);
  const Tensor result = beside ? (*beside)() : Tensor{};
  run.meanwhile();
  run.stream.wait(arrive);
  exchange_->pick(run, arrived, gathered, saved[tokens_], saved[arriving_], 0);
  if (!beside) run.scratch.release(mark);
  return result;
}

Tensor Experts::dispatched(Run& run, Arena& arena, Tensor x, const Saved& saved, const Part& part) const {
  if (!exchange_) return x;
  const Tensor arrived = arena.take(run.dtype, {part.token.elements(), x.last_dim()});
  const Arena::Mark mark = run.scratch.mark();
  const Tensor sorted = exchange_->gathers() ? Tensor{} : take_sorted(run, saved, x.last_dim());
  Tensor gathered;
  run.exchange(
      [&](Stream& on) { gathered = start_dispatch(run, arrived, sorted, x, saved, part.round, on); });
  exchange_->pick(run, arrived, gathered, saved[tokens_], saved[arriving_], part.round);
  run.scratch.release(mark);
  return arrived;
}

void Experts::give_back(Run& run, Tensor sorted, Tensor rows, Tensor again, const Saved& saved,
                        const Part& part) const {
  if (!exchange_) return;  // they are the same
  const Tensor counts = saved[arriving_];
  const Arena::Mark mark = run.scratch.mark();
  const Tensor arrived = run.scratch.take(rows.dtype, rows.shape);
  run.ops.embedding(run.stream, arrived, rows, part.row, 0, false);
  const ExchangedRows::Returning returning = exchange_->start_back(run, sorted, arrived, counts, part.round);
  const bool sends = again.rank() > 0;
  Tensor gathered;
  if (sends) {
    const Tensor sent = exchange_->gathers() ? Tensor{} : take_sorted(run, saved, again.last_dim());
    gathered = start_dispatch(run, again, sent, saved[x_], saved, part.round, run.exchanges());
  }
  const Event all = run.end_of(run.exchanges());
  if (part.kept) run.meanwhile();
  exchange_->end_back(run, sorted, counts, returning);
  run.stream.wait(all);
  if (sends) exchange_->pick(run, again, gathered, saved[tokens_], counts, part.round);
  run.scratch.release(mark);
}

// As often as where all rows come at once.
void Experts::take_turns(Run& run) const {
  if (!exchange_) return;
  run.meanwhile();
  run.meanwhile();
}

}  // namespace trifold
