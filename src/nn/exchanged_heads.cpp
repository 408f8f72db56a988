#include "nn/exchanged_heads.h"

#include "core/small_list.h"
#include "nn/context_rows.h"

namespace trifold {

ExchangedHeads::ExchangedHeads(const Mesh& mesh, const std::string& name, int64_t heads, int64_t kv_heads,
                               int64_t width)
    : parts_(mesh.size(Axis::Cp)),
      part_(mesh.coord(Axis::Cp)),
      heads_(heads),
      kv_heads_(kv_heads),
      width_(width) {
  check(heads % parts_ == 0 && kv_heads % parts_ == 0,
        "{}: {} query heads and {} key heads of a rank cannot be exchanged by {} context-parallel ranks",
        name, heads, kv_heads, parts_);
}

template <class Body>
void ExchangedHeads::for_each_piece(std::initializer_list<int64_t> kinds, Body body) const {
  for (int part = 0; part < parts_; ++part) {
    int64_t first = 0;  // first column of the kind
    for (const int64_t heads : kinds) {
      const int64_t columns = heads / parts_ * width_;
      body(part, first + part * columns, first / parts_, columns);
      first += heads * width_;
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
  const Shape shape{rows * parts_, packed.last_dim() / parts_};
  const Tensor of_heads = arena.take(run.dtype, shape);
  const Arena::Mark mark = run.scratch.mark();
  const Tensor sent = run.scratch.take(run.dtype, shape);
  const Tensor received = run.scratch.take(run.dtype, shape);
  for_each_piece(kinds, [&](int part, int64_t here, int64_t there, int64_t columns) {
    move_columns(run, sent.rows(part * rows, (part + 1) * rows), there, packed, here, columns);
  });
  exchange(run, received, sent);
  to_order(run, of_heads, received);
  run.scratch.release(mark);
  return of_heads;
}

void ExchangedHeads::to_rows(Run& run, Tensor packed, Tensor of_heads,
                             std::initializer_list<int64_t> kinds) const {
  const int64_t rows = packed.row_count();
  const Arena::Mark mark = run.scratch.mark();
  const Tensor sent = run.scratch.take(run.dtype, of_heads.shape);
  const Tensor received = run.scratch.take(run.dtype, of_heads.shape);
  to_ranks(run, sent, of_heads);
  exchange(run, received, sent);
  for_each_piece(kinds, [&](int part, int64_t here, int64_t there, int64_t columns) {
    move_columns(run, packed, here, received.rows(part * rows, (part + 1) * rows), there, columns);
  });
  run.scratch.release(mark);
}

}  // namespace trifold
