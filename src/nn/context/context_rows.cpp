#include "nn/context/context_rows.h"

namespace trifold {

namespace {

// Calls body(in_order, by_rank, count) for each run of rows that is contiguous in both orders.
template <class Body>
void for_each_context_run(const Run& run, Body body) {
  const int64_t length = run.batch->rows.length();
  const int parts = run.mesh.size(Axis::Cp);
  for (int part = 0; part < parts; ++part) {
    const SequenceRows rows = run.batch->rows.of_part(part);
    for (int64_t sample = 0; sample < run.batch->samples(); ++sample)
      for (const RowRun& piece : rows.runs())
        body(sample * length + piece.begin, (part * run.batch->samples() + sample) * rows.rows() + piece.row,
             piece.count);
  }
}

}  // namespace

void to_order(Run& run, Tensor in_order, Tensor by_rank) {
  for_each_context_run(run, [&](int64_t to, int64_t from, int64_t count) {
    run.ops.copy(run.stream, in_order.rows(to, to + count), by_rank.rows(from, from + count));
  });
}

void to_ranks(Run& run, Tensor by_rank, Tensor in_order) {
  for_each_context_run(run, [&](int64_t from, int64_t to, int64_t count) {
    run.ops.copy(run.stream, by_rank.rows(to, to + count), in_order.rows(from, from + count));
  });
}

void move_columns(Run& run, Tensor y, int64_t y_column, Tensor x, int64_t x_column, int64_t columns) {
  run.ops.rotary(run.stream, y, x, run.batch->positions.flat(),
                 {{}, 0, 0, columns, x_column, y_column, false});
}

void round_into_columns(Run& run, Tensor y, int64_t y_column, Tensor x) {
  const Arena::Mark mark = run.scratch.mark();
  Tensor rounded = x;
  if (x.dtype != run.dtype) {
    rounded = run.scratch.take(run.dtype, x.shape);
    run.ops.convert(run.stream, rounded, x);
  }
  move_columns(run, y, y_column, rounded, 0, rounded.last_dim());
  run.scratch.release(mark);
}

}  // namespace trifold
