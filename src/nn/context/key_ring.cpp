#include "nn/context/key_ring.h"

#include <utility>

#include "core/small_list.h"
#include "nn/context/context_rows.h"

namespace trifold {

// What comes in step s began s ranks before.
SequenceRows KeyRing::keys_at(const Run& run, int step) const {
  return run.batch->rows.of_part((part_ - step + parts_) % parts_);
}

Tensor KeyRing::take_keys(Run& run, DType dtype, Tensor packed) const {
  return run.scratch.take(dtype, {packed.row_count(), columns_});
}

void KeyRing::pass_on(Run& run, Tensor sent, Tensor received, Tensor also_sent, Tensor also_received) const {
  using Direction = Transfer::Direction;
  const int next = (part_ + 1) % parts_;
  const int before = (part_ + parts_ - 1) % parts_;
  SmallList<Transfer, 4> transfers;  // no allocation up to this many
  for (const auto& [out, in] : {std::pair{sent, received}, std::pair{also_sent, also_received}}) {
    if (out.rank() == 0) continue;
    transfers.push_back({Direction::Send, next, out});
    transfers.push_back({Direction::Receive, before, in});
  }
  if (transfers.empty()) return;
  run.side.wait(run.stream.record());
  run.mesh.comm({Axis::Cp}).exchange(transfers, run.side);
}

void KeyRing::forward(Run& run, Tensor out, Tensor lse, Tensor packed, Attention how) const {
  const Arena::Mark mark = run.scratch.mark();
  const DType wide = accumulate_type(run.dtype);
  const Tensor merged = wide == run.dtype ? out : run.scratch.take(wide, out.shape);
  Tensor held = take_keys(run, run.dtype, packed);
  Tensor coming = take_keys(run, run.dtype, packed);
  move_columns(run, held, 0, packed, first_, columns_);
  for (int step = 0; step < parts_; ++step) {
    if (step + 1 < parts_) pass_on(run, held, coming);
    how.key_rows = keys_at(run, step);
    how.further = step > 0;
    how.key_values = held;
    run.ops.attention(run.stream, merged, lse, packed, how);
    run.stream.wait(run.side.record());
    std::swap(held, coming);
  }
  if (wide != run.dtype) run.ops.convert(run.stream, out, merged);
  run.scratch.release(mark);
}

void KeyRing::backward(Run& run, Tensor dpacked, Tensor dout, Tensor packed, Tensor out, Tensor lse,
                       Attention how) const {
  const Arena::Mark mark = run.scratch.mark();
  const DType wide = accumulate_type(run.dtype);
  Tensor held = take_keys(run, run.dtype, packed);
  Tensor coming = take_keys(run, run.dtype, packed);
  how.dqueries = run.scratch.take(wide, {packed.row_count(), first_});
  const Tensor own = take_keys(run, wide, packed);  // stays here
  Tensor mine = take_keys(run, wide, packed);       // what this rank adds to those that it holds
  Tensor grown = take_keys(run, wide, packed);      // of those held before, to be sent on
  Tensor arrived = take_keys(run, wide, packed);
  run.ops.fill(run.stream, how.dqueries, 0.0);
  move_columns(run, held, 0, packed, first_, columns_);
  for (int step = 0; step < parts_; ++step) {
    const bool more = step + 1 < parts_;
    const bool follows = step > 1;  // ranks before this one, other than the owner, have added something
    pass_on(run, more ? held : Tensor{}, coming, follows ? grown : Tensor{}, arrived);
    how.key_rows = keys_at(run, step);
    how.further = step > 0;
    how.key_values = held;
    how.dkey_values = step == 0 ? own : mine;
    run.ops.fill(run.stream, how.dkey_values, 0.0);
    run.ops.attention_backward(run.stream, dpacked, dout, packed, out, lse, how);
    run.stream.wait(run.side.record());
    if (follows) run.ops.add(run.stream, mine, arrived, mine);
    if (step > 0) std::swap(mine, grown);
    std::swap(held, coming);
  }
  pass_on(run, grown, arrived);
  run.stream.wait(run.side.record());
  run.ops.add(run.stream, own, arrived, own);
  store(run, dpacked, 0, how.dqueries);
  store(run, dpacked, first_, own);
  run.scratch.release(mark);
}

void KeyRing::store(Run& run, Tensor dpacked, int64_t column, Tensor gradient) const {
  const Arena::Mark mark = run.scratch.mark();
  Tensor rounded = gradient;
  if (gradient.dtype != run.dtype) {
    rounded = run.scratch.take(run.dtype, gradient.shape);
    run.ops.convert(run.stream, rounded, gradient);
  }
  move_columns(run, dpacked, column, rounded, 0, rounded.last_dim());
  run.scratch.release(mark);
}

}  // namespace trifold
