#include "nn/context/exchanged_heads.h"

#include "core/small_list.h"
#include "nn/context/context_rows.h"

namespace trifold {

ExchangedHeads::ExchangedHeads(const Mesh& mesh, const std::string& name, int64_t heads, int64_t kv_heads,
                               int64_t width)
    : parts_(mesh.size(Axis::Cp)),
      part_(mesh.coord(Axis::Cp)),
      heads_(heads),
      kv_heads_(kv_heads),
      width_(width) {
  check(heads % parts_ == 0 && (kv_heads % parts_ == 0 || parts_ % kv_heads == 0),
        "{}: {} query heads and {} key heads of a rank cannot be exchanged by {} context-parallel ranks",
        name, heads, kv_heads, parts_);
}

template <class Body>
void ExchangedHeads::for_each_piece(std::initializer_list<int64_t> kinds, Body body) const {
  for (int part = 0; part < parts_; ++part) {
    int64_t first = 0;  // first column of the kind
    int64_t rank_column = 0;
    for (const int64_t heads : kinds) {
      const int64_t columns = heads_per_rank(heads) * width_;
      body(part, first + part * heads / parts_ * width_, rank_column, columns);
      first += heads * width_;
      rank_column += columns;
    }
  }
}

void ExchangedHeads::exchange(Run& run, Tensor to, Tensor from) const {
  SmallList<int64_t, 8> rows;  // no allocation for up to this many ranks
  for (int part = 0; part < parts_; ++part) rows.push_back(from.row_count() / parts_);
  const std::span<const int64_t> counts(rows.begin(), rows.size());
  run.mesh.comm({Axis::Cp}).all_to_all(to, from, counts, counts, run.stream);
}

Tensor ExchangedHeads::to_heads(Run& run, Arena& arena, Tensor packed,
                                std::initializer_list<int64_t> kinds) const {
  const int64_t rows = packed.row_count();
  int64_t local_heads = 0;
  for (const int64_t heads : kinds) local_heads += heads_per_rank(heads);
  const Shape shape{rows * parts_, local_heads * width_};
  const Tensor of_heads = arena.take(run.dtype, shape);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor sent = run.scratch.take(run.dtype, shape);
  const Tensor received = run.scratch.take(run.dtype, shape);
  for_each_piece(kinds, [&](int part, int64_t from, int64_t to, int64_t columns) {
    move_columns(run, sent.rows(part * rows, (part + 1) * rows), to, packed, from, columns);
  });
  exchange(run, received, sent);
  to_order(run, of_heads, received);
  run.scratch.release(mark);
  return of_heads;
}

Tensor ExchangedHeads::received_rows(Run& run, Tensor of_heads) const {
  const Tensor received = run.scratch.take(run.dtype, of_heads.shape);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor sent = run.scratch.take(run.dtype, of_heads.shape);
  to_ranks(run, sent, of_heads);
  exchange(run, received, sent);
  run.scratch.release(mark);
  return received;
}

void ExchangedHeads::outputs_of_rows(Run& run, Tensor out, Tensor of_heads) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor received = received_rows(run, of_heads);
  const int64_t rows = out.row_count();
  for_each_piece({heads_}, [&](int part, int64_t to, int64_t from, int64_t columns) {
    move_columns(run, out, to, received.rows(part * rows, (part + 1) * rows), from, columns);
  });
  run.scratch.release(mark);
}

void ExchangedHeads::projections_of_rows(Run& run, Tensor packed, Tensor of_heads) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor received = received_rows(run, of_heads);
  const int64_t rows = packed.row_count();
  for_each_piece({heads_, kv_heads_, kv_heads_}, [&](int part, int64_t to, int64_t from, int64_t columns) {
    if (from > 0 && has_copies()) return;
    move_columns(run, packed, to, received.rows(part * rows, (part + 1) * rows), from, columns);
  });
  if (has_copies()) add_copies(run, packed, received);
  run.scratch.release(mark);
}

void ExchangedHeads::add_copies(Run& run, Tensor packed, Tensor received) const {
  const int64_t rows = packed.row_count();
  const int64_t copies = parts_ / kv_heads_;
  const Shape shape{rows, 2 * width_};  // a key head and its values
  const DType wide = accumulate_type(run.dtype);
  const Tensor one = run.scratch.take(run.dtype, shape);
  const Tensor sum = run.scratch.take(wide, shape);
  const Tensor term = wide == run.dtype ? one : run.scratch.take(wide, shape);
  for (int64_t head = 0; head < kv_heads_; ++head) {
    for (int64_t copy = 0; copy < copies; ++copy) {
      const int64_t part = head * copies + copy;
      move_columns(run, one, 0, received.rows(part * rows, (part + 1) * rows), heads() * width_, 2 * width_);
      if (wide != run.dtype) run.ops.convert(run.stream, term, one);
      if (copy == 0)
        run.ops.copy(run.stream, sum, term);
      else
        run.ops.add(run.stream, sum, sum, term);
    }
    if (wide != run.dtype) run.ops.convert(run.stream, one, sum);
    const Tensor total = wide == run.dtype ? sum : one;
    move_columns(run, packed, (heads_ + head) * width_, total, 0, width_);
    move_columns(run, packed, (heads_ + kv_heads_ + head) * width_, total, width_, width_);
  }
}

}  // namespace trifold
