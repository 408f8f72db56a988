#include "nn/context/window_keys.h"

#include <algorithm>

#include "core/small_list.h"
#include "nn/context/context_rows.h"

namespace trifold {

namespace {

using Direction = Transfer::Direction;
using Transfers = SmallList<Transfer, 16>;

}  // namespace

SequenceRows WindowKeys::needed_by(const SequenceRows& rows) const {
  RowRun found[2];
  uint32_t count = 0;
  int64_t known = 0;  // positions before are this rank's, or needed already
  const std::span<const RowRun> runs = rows.runs();
  for (size_t i = 0; i < runs.size(); ++i) {
    const int64_t next = i + 1 < runs.size() ? runs[i + 1].begin : rows.length();
    const RowRun sides[] = {{std::max(known, runs[i].begin - left_), 0}, {runs[i].end(), 0}};
    const int64_t ends[] = {runs[i].begin, std::min(next, runs[i].end() + right_)};
    for (size_t side = 0; side < 2; ++side) {
      if (ends[side] <= sides[side].begin) continue;
      check(count < 2, "the windows of a rank cover more than two runs of other ranks' positions");
      const int64_t row = count == 0 ? 0 : found[0].count;
      found[count++] = {sides[side].begin, ends[side] - sides[side].begin, row};
    }
    known = std::max(runs[i].end(), ends[1]);
  }
  return SequenceRows::of_runs(rows.length(), {found, count});
}

int64_t WindowKeys::most_needed(const Run& run) const {
  int64_t most = 0;
  for (int part = 0; part < parts_; ++part)
    most = std::max(most, needed_by(run.batch->rows.of_part(part)).rows());
  return most;
}

int64_t WindowKeys::most_sent(const Run& run) const {
  int64_t most = 0;
  for (int owner = 0; owner < parts_; ++owner) {
    int64_t rows = 0;
    for (int needer = 0; needer < parts_; ++needer)
      if (needer != owner) for_each_piece(run, owner, needer, [&](Piece piece) { rows += piece.count; });
    most = std::max(most, rows);
  }
  return most;
}

bool WindowKeys::saves(const Run& run) const {
  return 2 * most_needed(run) <= run.batch->rows.length() - run.batch->rows.rows();
}

void WindowKeys::for_each_piece(const Run& run, int owner, int needer, FunctionRef<void(Piece)> body) const {
  const SequenceRows owned = run.batch->rows.of_part(owner);
  const SequenceRows needed = needed_by(run.batch->rows.of_part(needer));
  for (int64_t sample = 0; sample < run.batch->samples(); ++sample)
    for (const RowRun& to : needed.runs())
      for (const RowRun& from : owned.runs()) {
        const int64_t begin = std::max(to.begin, from.begin), end = std::min(to.end(), from.end());
        if (begin >= end) continue;
        body({sample * owned.rows() + from.row + begin - from.begin,
              sample * needed.rows() + to.row + begin - to.begin, end - begin});
      }
}

void WindowKeys::fetch(Run& run, Tensor own, Tensor received) const {
  Transfers transfers;
  for (int other = 0; other < parts_; ++other) {
    if (other == part_) continue;
    for_each_piece(run, part_, other, [&](Piece piece) {
      transfers.push_back({Direction::Send, other, own.rows(piece.owned, piece.owned + piece.count)});
    });
    for_each_piece(run, other, part_, [&](Piece piece) {
      transfers.push_back(
          {Direction::Receive, other, received.rows(piece.needed, piece.needed + piece.count)});
    });
  }
  if (transfers.empty()) return;
  run.side.wait(run.stream.record());
  run.mesh.comm({Axis::Cp}).exchange(transfers, run.side);
}

// Gradients arrive behind one another, in the order of ranks, in which they are then added.
void WindowKeys::return_gradients(Run& run, Tensor own, Tensor received) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor arrived = run.scratch.take(own.dtype, {most_sent(run), columns_});
  Transfers transfers;
  int64_t rows = 0;
  for (int other = 0; other < parts_; ++other) {
    if (other == part_) continue;
    for_each_piece(run, part_, other, [&](Piece piece) {
      transfers.push_back({Direction::Receive, other, arrived.rows(rows, rows + piece.count)});
      rows += piece.count;
    });
    for_each_piece(run, other, part_, [&](Piece piece) {
      transfers.push_back({Direction::Send, other, received.rows(piece.needed, piece.needed + piece.count)});
    });
  }
  if (!transfers.empty()) {
    run.side.wait(run.stream.record());
    run.mesh.comm({Axis::Cp}).exchange(transfers, run.side);
    run.stream.wait(run.side.record());
  }
  rows = 0;
  for (int other = 0; other < parts_; ++other) {
    if (other == part_) continue;
    for_each_piece(run, part_, other, [&](Piece piece) {
      const Tensor sum = own.rows(piece.owned, piece.owned + piece.count);
      run.ops.add(run.stream, sum, sum, arrived.rows(rows, rows + piece.count));
      rows += piece.count;
    });
  }
  run.scratch.release(mark);
}

void WindowKeys::forward(Run& run, Tensor out, Tensor lse, Tensor packed, Attention attention) const {
  const Arena::Mark mark = run.scratch.mark();
  const DType wide = accumulate_type(run.dtype);
  const Tensor merged = wide == run.dtype ? out : run.scratch.take(wide, out.shape);
  const Tensor own = run.scratch.take(run.dtype, {packed.row_count(), columns_});
  const SequenceRows needed = needed_by(run.batch->rows);
  const Tensor received = run.scratch.take(run.dtype, {attention.batch * most_needed(run), columns_})
                              .rows(0, attention.batch * needed.rows());
  move_columns(run, own, 0, packed, first_, columns_);
  fetch(run, own, received);
  attention.key_rows = attention.rows;
  attention.key_values = own;
  run.ops.attention(run.stream, merged, lse, packed, attention);
  run.stream.wait(run.side.record());
  if (needed.rows() > 0) {
    attention.key_rows = needed;
    attention.further = true;
    attention.key_values = received;
    run.ops.attention(run.stream, merged, lse, packed, attention);
  }
  if (wide != run.dtype) run.ops.convert(run.stream, out, merged);
  run.scratch.release(mark);
}

void WindowKeys::backward(Run& run, Tensor dpacked, Tensor dout, Tensor packed, Tensor out, Tensor lse,
                          Attention attention) const {
  const Arena::Mark mark = run.scratch.mark();
  const DType wide = accumulate_type(run.dtype);
  const Tensor own = run.scratch.take(run.dtype, {packed.row_count(), columns_});
  const SequenceRows needed = needed_by(run.batch->rows);
  const Shape most{attention.batch * most_needed(run), columns_};
  const int64_t rows = attention.batch * needed.rows();
  const Tensor received = run.scratch.take(run.dtype, most).rows(0, rows);
  const Tensor own_gradients = run.scratch.take(wide, own.shape);
  const Tensor received_gradients = run.scratch.take(wide, most).rows(0, rows);
  attention.dqueries = run.scratch.take(wide, {packed.row_count(), first_});
  for (const Tensor& sum : {attention.dqueries, own_gradients, received_gradients})
    run.ops.fill(run.stream, sum, 0.0);
  move_columns(run, own, 0, packed, first_, columns_);
  fetch(run, own, received);
  attention.key_rows = attention.rows;
  attention.key_values = own;
  attention.dkey_values = own_gradients;
  run.ops.attention_backward(run.stream, dpacked, dout, packed, out, lse, attention);
  run.stream.wait(run.side.record());
  if (needed.rows() > 0) {
    attention.key_rows = needed;
    attention.further = true;
    attention.key_values = received;
    attention.dkey_values = received_gradients;
    run.ops.attention_backward(run.stream, dpacked, dout, packed, out, lse, attention);
  }
  return_gradients(run, own_gradients, received_gradients);
  round_into_columns(run, dpacked, 0, attention.dqueries);
  round_into_columns(run, dpacked, first_, own_gradients);
  run.scratch.release(mark);
}

}  // namespace trifold
