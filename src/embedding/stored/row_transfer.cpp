#include "embedding/stored/row_transfer.h"

#include <algorithm>

namespace trifold {

namespace {

// The lists of indices: source and destination of victims, and source and destination of loaded rows.
constexpr int kVictimFrom = 0, kVictimTo = 1, kRowFrom = 2, kRowTo = 3, kLists = 4;

}  // namespace

size_t RowTransfer::shared_bytes(int64_t batch_rows, size_t row_bytes, bool staged) {
  return static_cast<size_t>(batch_rows) * (kLists * sizeof(int32_t) + (staged ? row_bytes : 0));
}

RowTransfer::RowTransfer(const OpTable& ops, const RowStore& store, const std::vector<RowArray>& arrays,
                         DType dtype, int64_t rows, int64_t slots, int64_t batch_rows)
    : ops_(ops), store_(store), arrays_(arrays), batch_rows_(batch_rows) {
  size_t row_bytes = 0;
  for (const RowArray& array : arrays) row_bytes += array.row_bytes;
  shared_ = Buffer::shared(shared_bytes(batch_rows, row_bytes, !store.is_shared()), ops.device);
  // The staging area is first, where it is aligned for every type.
  std::byte* staging = shared_.data();
  for (const RowArray& array : arrays) {
    const auto numbers = static_cast<int64_t>(array.row_bytes / size_of(dtype));
    Views& made = views_.emplace_back(Views{{array.slots, dtype, {slots, numbers}}, {}, {}});
    if (store.is_shared()) {
      made.stored = {store.data() + array.begin, dtype, {rows, numbers}};
    } else {
      made.staged = {staging, dtype, {batch_rows, numbers}};
      staging += made.staged.bytes();
    }
  }
}

Tensor RowTransfer::list(int index, int64_t count) const {
  const size_t bytes = static_cast<size_t>(batch_rows_) * sizeof(int32_t);
  return {
      shared_.data() + shared_.bytes() - static_cast<size_t>(kLists - index) * bytes, DType::I32, {count}};
}

void RowTransfer::check_count(std::span<const RowMove> moves) const {
  check(std::ssize(moves) <= batch_rows_, "{} row transfers, but there is room for {}", moves.size(),
        batch_rows_);
}

void RowTransfer::fetch_victims(std::span<const RowMove> moves, Stream& stream) const {
  check_count(moves);
  int64_t victims = 0;
  for (const RowMove& move : moves) {
    if (move.victim < 0) continue;
    list(kVictimFrom, batch_rows_).as<int32_t>()[victims] = move.slot;
    list(kVictimTo, batch_rows_).as<int32_t>()[victims] = static_cast<int32_t>(victims);
    ++victims;
  }
  if (victims == 0) return;
  for (const Views& views : views_)
    ops_.copy_rows(stream, views.staged, list(kVictimTo, victims), views.slots, list(kVictimFrom, victims));
  stream.synchronize();
}

void RowTransfer::send_rows(std::span<const RowMove> moves, Stream& stream) const {
  check_count(moves);
  int64_t rows = 0;
  for (const RowMove& move : moves) {
    if (move.row < 0) continue;
    list(kRowFrom, batch_rows_).as<int32_t>()[rows] = static_cast<int32_t>(rows);
    list(kRowTo, batch_rows_).as<int32_t>()[rows] = move.slot;
    ++rows;
  }
  for (const Views& views : views_)
    if (rows > 0) ops_.copy_rows(stream, views.slots, list(kRowTo, rows), views.staged, list(kRowFrom, rows));
}

void RowTransfer::carry_out(std::span<const RowMove> moves, FunctionRef<bool(int64_t row)> stored,
                            const InitialRow& initial, Stream& stream) const {
  check_count(moves);
  if (!store_.is_shared()) {
    int64_t at = 0;
    for (const RowMove& move : moves) {
      begin_row(arrays_, move.row, initial, [&](const RowArray& array) {
        return staged(static_cast<size_t>(&array - arrays_.data()), at);
      });
      ++at;
    }
    return send_rows(moves, stream);
  }
  const auto numbers = [&](int which) { return list(which, batch_rows_).as<int32_t>(); };
  int64_t victims = 0, rows = 0;
  for (const RowMove& move : moves) {
    if (move.victim >= 0) {
      numbers(kVictimFrom)[victims] = move.slot;
      numbers(kVictimTo)[victims] = move.victim;
      ++victims;
    }
    if (move.row < 0) continue;
    numbers(kRowFrom)[rows] = move.row;
    numbers(kRowTo)[rows] = move.slot;
    ++rows;
    if (!stored(move.row))
      begin_row(arrays_, move.row, initial,
                [&](const RowArray& array) { return store_.data() + array.place_of(move.row); });
  }
  for (const Views& views : views_)
    if (victims > 0)
      ops_.copy_rows(stream, views.stored, list(kVictimTo, victims), views.slots, list(kVictimFrom, victims));
  for (const Views& views : views_)
    if (rows > 0) ops_.copy_rows(stream, views.slots, list(kRowTo, rows), views.stored, list(kRowFrom, rows));
}

}  // namespace trifold
