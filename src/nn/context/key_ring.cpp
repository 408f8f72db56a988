#include "nn/context/key_ring.h"

#include <utility>

#include "core/small_list.h"
#include "nn/context/context_rows.h"

namespace trifold {

// Keys of step s come from the rank that is s ranks back in the ring.
SequenceRows KeyRing::keys_at(const Run& run, int step) const {
  return run.batch->rows.of_part((part_ - step + parts_) % parts_);
}

Tensor KeyRing::take_keys(Run& run, DType dtype, Tensor packed) const {
  return run.scratch.take(dtype, {packed.row_count(), columns_});
}

void KeyRing::pass_on(Run& run, Tensor sent, Tensor received, Tensor also_sent, Tensor also_received) const {
  using Direction = Transfer::Direction;
  const int next = (part_ + 1) % parts_;
  const int previous = (part_ + parts_ - 1) % parts_;
  SmallList<Transfer, 4> transfers;  // no allocation up to this many
  for (const auto& [out, in] : {std::pair{sent, received}, std::pair{also_sent, also_received}}) {
    if (out.rank() == 0) continue;
    transfers.push_back({Direction::Send, next, out});
    transfers.push_back({Direction::Receive, previous, in});
  }
  if (transfers.empty()) return;
  run.side.wait(run.stream.record());
  run.mesh.comm({Axis::Cp}).exchange(transfers, run.side);
}

void KeyRing::forward(Run& run, Tensor out, Tensor lse, Tensor packed, Attention attention) const {
  const Arena::Mark mark = run.scratch.mark();
  const DType wide = accumulate_type(run.dtype);
  const Tensor merged = wide == run.dtype ? out : run.scratch.take(wide, out.shape);
  Tensor keys = take_keys(run, run.dtype, packed);
  Tensor next_keys = take_keys(run, run.dtype, packed);
  move_columns(run, keys, 0, packed, first_, columns_);
  for (int step = 0; step < parts_; ++step) {
    if (step + 1 < parts_) pass_on(run, keys, next_keys);
    attention.key_rows = keys_at(run, step);
    attention.further = step > 0;
    attention.key_values = keys;
    run.ops.attention(run.stream, merged, lse, packed, attention);
    run.stream.wait(run.side.record());
    std::swap(keys, next_keys);
  }
  if (wide != run.dtype) run.ops.convert(run.stream, out, merged);
  run.scratch.release(mark);
}

void KeyRing::backward(Run& run, Tensor dpacked, Tensor dout, Tensor packed, Tensor out, Tensor lse,
                       Attention attention) const {
  const Arena::Mark mark = run.scratch.mark();
  const DType wide = accumulate_type(run.dtype);
  Tensor keys = take_keys(run, run.dtype, packed);
  Tensor next_keys = take_keys(run, run.dtype, packed);
  attention.dqueries = run.scratch.take(wide, {packed.row_count(), first_});
  // Gradients of this rank's own keys; of the keys of this step from this rank's queries alone; of the keys of the
  // previous step, summed over the ranks so far, to be sent on; and of the keys of this step, as received.
  const Tensor own_gradients = take_keys(run, wide, packed);
  Tensor term = take_keys(run, wide, packed);
  Tensor sum = take_keys(run, wide, packed);
  Tensor arrived = take_keys(run, wide, packed);
  run.ops.fill(run.stream, attention.dqueries, 0.0);
  move_columns(run, keys, 0, packed, first_, columns_);
  for (int step = 0; step < parts_; ++step) {
    const bool more = step + 1 < parts_;
    const bool follows = step > 1;  // ranks before this one, other than the owner, have added something
    pass_on(run, more ? keys : Tensor{}, next_keys, follows ? sum : Tensor{}, arrived);
    attention.key_rows = keys_at(run, step);
    attention.further = step > 0;
    attention.key_values = keys;
    attention.dkey_values = step == 0 ? own_gradients : term;
    run.ops.fill(run.stream, attention.dkey_values, 0.0);
    run.ops.attention_backward(run.stream, dpacked, dout, packed, out, lse, attention);
    run.stream.wait(run.side.record());
    if (follows) run.ops.add(run.stream, term, arrived, term);
    if (step > 0) std::swap(term, sum);
    std::swap(keys, next_keys);
  }
  pass_on(run, sum, arrived);
  run.stream.wait(run.side.record());
  run.ops.add(run.stream, own_gradients, arrived, own_gradients);
  round_into_columns(run, dpacked, 0, attention.dqueries);
  round_into_columns(run, dpacked, first_, own_gradients);
  run.scratch.release(mark);
}

}  // namespace trifold
