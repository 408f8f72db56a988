// Dispatch and combine of Experts, and computation that overlaps with them.
#include "nn/experts.h"

namespace trifold {

Tensor Experts::start_dispatch(Run& run, Tensor received, Tensor sorted, Tensor x, const Saved& saved,
                               int64_t number, Stream& on) const {
  if (exchange_->gathers()) return exchange_->gather(run, x, on);
  run.ops.embedding(run.stream, sorted, x, saved[own_.token], 0, false);
  exchange_->dispatch(run, received, sorted, saved[host_counts_], number, on);
  return {};
}

Tensor Experts::dispatch_overlapped(Run& run, Tensor received, Tensor sorted, Tensor x, SharedExpert shared,
                                    const Saved& saved) const {
  Stream& on = shared && run.other_half == nullptr ? run.side : run.exchanges();
  const Arena::Mark mark = run.scratch.mark();
  const Tensor gathered = start_dispatch(run, received, sorted, x, saved, 0, on);
  const Event done = run.end_of(on);
  const Tensor result = shared ? (*shared)() : Tensor{};
  run.yield();
  run.stream.wait(done);
  exchange_->select(run, received, gathered, saved[tokens_], saved[host_counts_], 0);
  if (!shared) run.scratch.release(mark);
  return result;
}

Tensor Experts::dispatched(Run& run, Arena& arena, Tensor x, const Saved& saved, const Round& round) const {
  if (!exchange_) return x;
  const Tensor received = arena.take(run.dtype, {round.token.elements(), x.last_dim()});
  const Arena::Mark mark = run.scratch.mark();
  const Tensor sorted = exchange_->gathers() ? Tensor{} : take_sorted(run, saved, x.last_dim());
  Tensor gathered;
  run.exchange(
      [&](Stream& on) { gathered = start_dispatch(run, received, sorted, x, saved, round.number, on); });
  exchange_->select(run, received, gathered, saved[tokens_], saved[host_counts_], round.number);
  run.scratch.release(mark);
  return received;
}

void Experts::combine(Run& run, Tensor sorted, Tensor rows, Tensor received_x, const Saved& saved,
                      const Round& round) const {
  if (!exchange_) return;  // `sorted` and `rows` are the same memory
  const Tensor counts = saved[host_counts_];
  const Arena::Mark mark = run.scratch.mark();
  const Tensor results = run.scratch.take(rows.dtype, rows.shape);
  run.ops.embedding(run.stream, results, rows, round.row, 0, false);
  const ExchangedRows::PendingCombine pending =
      exchange_->start_combine(run, sorted, results, counts, round.number);
  const bool redispatches = received_x.rank() > 0;
  Tensor gathered;
  if (redispatches) {
    const Tensor sent = exchange_->gathers() ? Tensor{} : take_sorted(run, saved, received_x.last_dim());
    gathered = start_dispatch(run, received_x, sent, saved[x_], saved, round.number, run.exchanges());
  }
  const Event done = run.end_of(run.exchanges());
  if (round.is_kept) run.yield();
  exchange_->finish_combine(run, sorted, counts, pending);
  run.stream.wait(done);
  if (redispatches) exchange_->select(run, received_x, gathered, saved[tokens_], counts, round.number);
  run.scratch.release(mark);
}

// A single round yields once in dispatch and once in combine.
void Experts::yield_for_rounds(Run& run) const {
  if (!exchange_) return;
  run.yield();
  run.yield();
}

}  // namespace trifold
