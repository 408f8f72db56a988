#include "tensor_parallel/vocab_statistics.h"

namespace trifold {

VocabStatistics VocabStatistics::in(Tensor memory, int64_t rows) {
  const auto part = [&](int64_t index) { return memory.flat(index * rows, (index + 1) * rows); };
  return {part(0), part(1), part(2)};
}

VocabStatistics VocabStatistics::take(Arena& arena, DType dtype, int64_t rows) {
  return in(arena.take(dtype, {kCount * rows}), rows);
}

VocabStatistics VocabStatistics::rows(int64_t begin, int64_t end) const {
  return {max.rows(begin, end), sum.rows(begin, end), target.rows(begin, end)};
}

namespace {

// Combines the statistics `all` [ranks, 3, n] of all ranks' parts of n rows into statistics of whole rows. A row's
// maximum is the largest of the parts' maxima; each part's sum of exponentials is rescaled to it, and the sums are
// added; the label's logit is zero on all ranks except one. Every rank combines them in rank order.
void combine(Run& run, Tensor all, const VocabStatistics& result) {
  const int64_t rows = result.max.elements();
  const int64_t size = VocabStatistics::kCount * rows;
  const int64_t ranks = all.elements() / size;
  const auto part = [&](int64_t rank) {
    return VocabStatistics::in(all.flat(rank * size, (rank + 1) * size), rows);
  };
  run.ops.copy(run.stream, result.max, part(0).max);
  for (int64_t rank = 1; rank < ranks; ++rank)
    run.ops.reduce(run.stream, result.max, part(rank).max, Reduce::Max);
  for (int64_t rank = 0; rank < ranks; ++rank)
    run.ops.softmax_rescale(run.stream, part(rank).sum, part(rank).max, result.max);
  run.ops.copy(run.stream, result.sum, part(0).sum);
  run.ops.copy(run.stream, result.target, part(0).target);
  for (int64_t rank = 1; rank < ranks; ++rank) {
    run.ops.reduce(run.stream, result.sum, part(rank).sum, Reduce::Sum);
    run.ops.reduce(run.stream, result.target, part(rank).target, Reduce::Sum);
  }
}

}  // namespace

// One all-gather exchanges all three statistics.
void find_statistics(Run& run, const Region& region, Tensor logits, Tensor labels, int64_t first_id,
                     int64_t vocab, const VocabStatistics& result) {
  const auto find = [&](const VocabStatistics& to) {
    run.ops.softmax_stats(run.stream, to.max, to.sum, to.target, logits, labels, first_id, vocab);
  };
  if (region.alone()) return find(result);
  const Arena::Mark mark = run.scratch.mark();
  const int64_t rows = result.max.elements();
  const Tensor local = run.scratch.take(result.max.dtype, {VocabStatistics::kCount * rows});
  find(VocabStatistics::in(local, rows));
  combine(run, region.gather_parts(run, local, run.scratch), result);
  run.scratch.release(mark);
}

void merge_statistics(Run& run, const VocabStatistics& all, const VocabStatistics& part) {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor max = run.scratch.take(all.max.dtype, all.max.shape);
  run.ops.copy(run.stream, max, all.max);
  run.ops.reduce(run.stream, max, part.max, Reduce::Max);
  run.ops.softmax_rescale(run.stream, all.sum, all.max, max);
  run.ops.softmax_rescale(run.stream, part.sum, part.max, max);
  run.ops.reduce(run.stream, all.sum, part.sum, Reduce::Sum);
  run.ops.reduce(run.stream, all.target, part.target, Reduce::Sum);
  run.ops.copy(run.stream, all.max, max);
  run.scratch.release(mark);
}

namespace {

// Elements of a chunk's logits over the whole vocabulary: the fewest with efficient matrix products, each of which
// reads the whole weight.
constexpr int64_t kChunkLogits = int64_t{1} << 24;
constexpr int64_t kFewestRows = 64;

}  // namespace

// The largest power of two within kChunkLogits.
int64_t rows_of_chunk(int64_t vocab) {
  int64_t rows = kFewestRows;
  while (2 * rows * vocab <= kChunkLogits) rows *= 2;
  return rows;
}

}  // namespace trifold
