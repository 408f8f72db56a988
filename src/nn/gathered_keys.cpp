#include "nn/gathered_keys.h"

namespace trifold {

int64_t GatheredKeys::rows_of_all(const Run& run) const {
  return run.batch->samples() * run.batch->rows.length();
}

template <class Body>
void GatheredKeys::for_each_run(const Run& run, Body body) const {
  const int64_t length = run.batch->rows.length();
  for (int part = 0; part < parts_; ++part) {
    const SequenceRows rows = SequenceRows::zig_zag(length, part, parts_);
    for (int64_t sample = 0; sample < run.batch->samples(); ++sample)
      for (const RowRun& piece : rows.runs())
        body(sample * length + piece.begin, (part * run.batch->samples() + sample) * rows.rows() + piece.row,
             piece.count);
  }
}

Tensor GatheredKeys::gather(Run& run, Tensor packed) const {
  const Shape shape{rows_of_all(run), columns_};
  const Tensor all = run.scratch.take(run.dtype, shape);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor by_rank = run.scratch.take(run.dtype, shape);
  const int64_t rows = packed.row_count();
  const Tensor mine = by_rank.rows(part_ * rows, (part_ + 1) * rows);
  run.ops.rotary(run.stream, mine, packed, run.batch->positions.flat(),
                 {{}, 0, 0, columns_, first_, 0, false});
  run.mesh.comm({Axis::Cp}).all_gather(by_rank, mine, run.stream);
  for_each_run(run, [&](int64_t in_order, int64_t from, int64_t count) {
    run.ops.copy(run.stream, all.rows(in_order, in_order + count), by_rank.rows(from, from + count));
  });
  run.scratch.release(mark);
  return all;
}

Tensor GatheredKeys::take_gradients(Run& run) const {
  return run.scratch.take(accumulate_type(run.dtype), {rows_of_all(run), columns_});
}

void GatheredKeys::scatter(Run& run, Tensor dpacked, Tensor gradients) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor by_rank = run.scratch.take(gradients.dtype, gradients.shape);
  for_each_run(run, [&](int64_t in_order, int64_t to, int64_t count) {
    run.ops.copy(run.stream, by_rank.rows(to, to + count), gradients.rows(in_order, in_order + count));
  });
  const int64_t rows = dpacked.row_count();
  Tensor mine = by_rank.rows(part_ * rows, (part_ + 1) * rows);
  run.mesh.comm({Axis::Cp}).reduce_scatter(mine, by_rank, Reduce::Sum, run.stream);
  if (mine.dtype != run.dtype) {
    const Tensor rounded = run.scratch.take(run.dtype, mine.shape);
    run.ops.convert(run.stream, rounded, mine);
    mine = rounded;
  }
  run.ops.rotary(run.stream, dpacked, mine, run.batch->positions.flat(),
                 {{}, 0, 0, columns_, 0, first_, false});
  run.scratch.release(mark);
}

}  // namespace trifold
