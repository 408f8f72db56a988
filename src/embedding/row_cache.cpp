#include "embedding/row_cache.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace trifold {

namespace {

constexpr uint64_t kEmpty = ~uint64_t{0};
constexpr size_t kAhead = 16;          // entries of the index that are prefetched
constexpr int64_t kSettled = 1 << 14;  // rows written between two releases of memory

// Entries of the index: two thirds of them are in use when all slots are.
size_t index_entries(int64_t slots) { return static_cast<size_t>(slots + slots / 2 + 1); }

int32_t row_of(uint64_t entry) { return static_cast<int32_t>(entry >> 32); }
int32_t slot_in(uint64_t entry) { return static_cast<int32_t>(static_cast<uint32_t>(entry)); }

}  // namespace

RowCache::RowCache(const OpTable& ops, const RowStore& store, std::vector<RowArray> arrays, DType dtype,
                   int64_t rows, int64_t slots, int64_t batch_rows, InitialRow initial)
    : store_(store),
      arrays_(std::move(arrays)),
      rows_(rows),
      slots_(slots),
      batch_rows_(batch_rows),
      initial_(std::move(initial)),
      index_(index_entries(slots), kEmpty),
      row_of_slot_(static_cast<size_t>(slots), -1),
      last_batch_(static_cast<size_t>(slots), -2),
      uses_(static_cast<size_t>(slots), 0),
      changed_(static_cast<size_t>(slots), 0),
      number_(static_cast<size_t>(slots), -1),
      written_(static_cast<size_t>(rows + 63) / 64, 0) {
  check(slots >= std::min(rows, 2 * batch_rows), "{} slots for batches of {} rows", slots, batch_rows);
  missing_.reserve(static_cast<size_t>(batch_rows));
  moves_.reserve(static_cast<size_t>(batch_rows));
  if (ops.device != nullptr) transfer_.emplace(ops, store, arrays_, dtype, rows, slots, batch_rows);
}

size_t RowCache::bookkeeping_bytes(int64_t rows, int64_t slots, int64_t batch_rows) {
  const size_t of_slot = 3 * sizeof(int32_t) + 2 * sizeof(uint8_t);
  return index_entries(slots) * sizeof(uint64_t) + static_cast<size_t>(slots) * of_slot +
         static_cast<size_t>(rows + 63) / 64 * sizeof(uint64_t) +
         static_cast<size_t>(batch_rows) * (sizeof(int32_t) + sizeof(RowMove));
}

// Multiplicative hashing (Knuth, vol. 3, 6.4), scaled to the entries.
size_t RowCache::home_of(int32_t row) const {
  constexpr uint32_t kGolden = 2654435769U;
  const uint64_t hash = static_cast<uint32_t>(row) * kGolden;
  return static_cast<size_t>(static_cast<uint32_t>(hash) * static_cast<uint64_t>(index_.size()) >> 32);
}

int64_t RowCache::find(int32_t row) const {
  for (size_t at = home_of(row); index_[at] != kEmpty; at = at + 1 == index_.size() ? 0 : at + 1)
    if (row_of(index_[at]) == row) return slot_in(index_[at]);
  return kNone;
}

void RowCache::insert(int32_t row, int32_t slot) {
  size_t at = home_of(row);
  while (index_[at] != kEmpty) at = at + 1 == index_.size() ? 0 : at + 1;
  index_[at] = static_cast<uint64_t>(static_cast<uint32_t>(row)) << 32 | static_cast<uint32_t>(slot);
}

// Entries behind the gap that may be there move up (Knuth's algorithm R), so that no mark of deletion is needed.
void RowCache::erase(int32_t row) {
  const size_t size = index_.size();
  size_t gap = home_of(row);
  while (row_of(index_[gap]) != row) gap = gap + 1 == size ? 0 : gap + 1;
  for (size_t at = gap + 1 == size ? 0 : gap + 1; index_[at] != kEmpty; at = at + 1 == size ? 0 : at + 1) {
    const size_t home = home_of(row_of(index_[at]));
    const size_t from_home = at >= home ? at - home : at + size - home;
    const size_t from_gap = at >= gap ? at - gap : at + size - gap;
    if (from_home < from_gap) continue;
    index_[gap] = index_[at];
    gap = at;
  }
  index_[gap] = kEmpty;
}

// A slot whose row is none of the last two batches; the row is still in the index.
int32_t RowCache::free_slot() {
  if (filled_ < slots_) return static_cast<int32_t>(filled_++);
  for (;;) {
    const auto slot = static_cast<size_t>(hand_);
    hand_ = hand_ + 1 == slots_ ? 0 : hand_ + 1;
    if (batch_ - last_batch_[slot] <= 1) continue;
    if (uses_[slot] == 0) return static_cast<int32_t>(slot);
    --uses_[slot];
  }
}

void RowCache::bring_in(std::span<int32_t> ids, bool changes, Numbered* numbered, Stream& stream) {
  ++batch_;
  missing_.clear();
  moves_.clear();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i + kAhead < ids.size()) __builtin_prefetch(&index_[home_of(ids[i + kAhead])]);
    const int64_t slot = find(ids[i]);
    if (slot == kNone) {
      missing_.push_back(ids[i]);
      ids[i] = ~ids[i];  // below 0 until its row has a slot
      continue;
    }
    const auto at = static_cast<size_t>(slot);
    ids[i] = static_cast<int32_t>(slot);
    if (last_batch_[at] == batch_) continue;
    if (uses_[at] < kMostUses) ++uses_[at];
    last_batch_[at] = batch_;
    changed_[at] |= static_cast<uint8_t>(changes);
    ++counts_.wanted;
    ++counts_.found;
  }
  if (!missing_.empty()) {
    plan_moves(changes);
    announce();
    carry_out(stream);
    for (int32_t& id : ids)
      if (id < 0) id = static_cast<int32_t>(find(~id));
  }
  if (numbered != nullptr) number(ids, *numbered);
}

void RowCache::number(std::span<const int32_t> slots, Numbered& numbered) {
  int32_t count = 0;
  for (const int32_t slot : slots) {
    int32_t& number = number_[static_cast<size_t>(slot)];
    if (number >= 0) continue;
    numbered.slots[static_cast<size_t>(count)] = slot;
    number = count++;
  }
  numbered.count = count;
  const std::span<int32_t> distinct = numbered.slots.first(static_cast<size_t>(count));
  if (numbered.by_row) {
    std::sort(distinct.begin(), distinct.end(), [this](int32_t a, int32_t b) {
      return row_of_slot_[static_cast<size_t>(a)] < row_of_slot_[static_cast<size_t>(b)];
    });
    for (int32_t i = 0; i < count; ++i) number_[static_cast<size_t>(distinct[static_cast<size_t>(i)])] = i;
  }
  for (size_t i = 0; i < slots.size(); ++i) numbered.numbers[i] = number_[static_cast<size_t>(slots[i])];
  for (const int32_t slot : distinct) number_[static_cast<size_t>(slot)] = -1;
}

void RowCache::plan_moves(bool changes) {
  for (const int32_t row : missing_) {
    if (find(row) != kNone) continue;  // listed twice
    ++counts_.wanted;
    RowMove move{free_slot(), row, -1};
    const auto slot = static_cast<size_t>(move.slot);
    if (row_of_slot_[slot] >= 0) {
      erase(row_of_slot_[slot]);
      if (changed_[slot] != 0) move.victim = row_of_slot_[slot];
    }
    row_of_slot_[slot] = row;
    last_batch_[slot] = batch_;
    uses_[slot] = 0;
    changed_[slot] = static_cast<uint8_t>(changes);
    insert(row, move.slot);
    moves_.push_back(move);
  }
}

// Starts all reads: of rows, and of the pages into which rows are written.
void RowCache::announce() const {
  const auto expect = [&](int64_t row) {
    for (const RowArray& array : arrays_) {
      const size_t begin = array.place_of(row);
      store_.expect(begin, begin + array.row_bytes);
    }
  };
  for (const RowMove& move : moves_) {
    if (is_written(move.row)) expect(move.row);
    if (move.victim >= 0 && is_written(move.victim)) expect(move.victim);
  }
}

void RowCache::carry_out(Stream& stream, bool anew) {
  if (transfer_)
    transfer_->carry_out(
        moves_, [this, anew](int64_t row) { return !anew && is_written(row); }, initial_, stream);
  else
    move_on_host(anew);
  for (const RowMove& move : moves_) {
    if (move.victim >= 0) set_written(move.victim);
    if (store_.is_shared()) set_written(move.row);
  }
}

void RowCache::move_on_host(bool anew) const {
  for (const RowMove& move : moves_) {
    const bool stored = !anew && is_written(move.row);
    for (const RowArray& array : arrays_) {
      std::byte* slot = array.slot(move.slot);
      if (move.victim >= 0) store_.write(slot, array.place_of(move.victim), array.row_bytes);
      if (stored) store_.read(slot, array.place_of(move.row), array.row_bytes);
    }
    if (!stored)
      begin_row(arrays_, move.row, initial_, [&](const RowArray& array) { return array.slot(move.slot); });
  }
}

// A save may still need a row's old value after its batch was brought in, so the row is not initialised earlier,
// although bring_in then reads in vain the values that are replaced here.
void RowCache::begin_anew(std::span<const int32_t> rows, Stream& stream) {
  moves_.clear();
  for (const int32_t row : rows) {
    const int64_t slot = find(row);
    if (slot != kNone) {
      changed_[static_cast<size_t>(slot)] = 1;
      moves_.push_back({static_cast<int32_t>(slot), row, -1});
    } else if (is_written(row)) {
      begin_row(arrays_, row, initial_,
                [&](const RowArray& array) { return store_.data() + array.place_of(row); });
    }
  }
  carry_out(stream, true);
  // The next moves use the same staging area, on another stream.
  if (transfer_) stream.synchronize();
}

// Of slots on a device.
void RowCache::write_changed(Stream& stream) {
  const auto flush = [&] {
    transfer_->carry_out(
        moves_, [](int64_t) { return true; }, initial_, stream);
    stream.synchronize();
    for (const RowMove& move : moves_) set_written(move.victim);
    moves_.clear();
  };
  moves_.clear();
  for (int64_t slot = 0; slot < slots_; ++slot) {
    const auto at = static_cast<size_t>(slot);
    if (row_of_slot_[at] < 0 || changed_[at] == 0) continue;
    moves_.push_back({static_cast<int32_t>(slot), -1, row_of_slot_[at]});
    if (std::ssize(moves_) == batch_rows_) flush();
  }
  flush();
}

// In the order of the file, which is written once from begin to end: slots are in no order.
void RowCache::settle_rows(int64_t begin, int64_t end) const {
  for (int64_t row = begin; row < end; ++row) {
    const int64_t slot = transfer_ ? kNone : find(static_cast<int32_t>(row));
    const bool changed = slot != kNone && changed_[static_cast<size_t>(slot)] != 0;
    if (!changed && is_written(row)) continue;
    for (const RowArray& array : arrays_) {
      std::byte* to = store_.data() + array.place_of(row);
      if (changed) std::memcpy(to, array.slot(slot), array.row_bytes);
    }
    if (!changed) initial_(row, store_.data() + arrays_.front().place_of(row));
  }
  for (const RowArray& array : arrays_) store_.release(array.place_of(begin), array.place_of(end));
}

// Slots keep their marks of change: the next batch, which is fetched already, will change its rows.
void RowCache::settle(Stream& stream) {
  if (transfer_) write_changed(stream);
  const int64_t pieces = (rows_ + kSettled - 1) / kSettled;
  stream.pool().parallel_for(pieces, 1, [&](int64_t begin, int64_t end) {
    for (int64_t piece = begin; piece < end; ++piece)
      settle_rows(piece * kSettled, std::min(rows_, (piece + 1) * kSettled));
  });
  std::fill(written_.begin(), written_.end(), ~uint64_t{0});
}

void RowCache::reload() {
  std::fill(written_.begin(), written_.end(), ~uint64_t{0});
  std::fill(index_.begin(), index_.end(), kEmpty);
  std::fill(row_of_slot_.begin(), row_of_slot_.end(), -1);
  std::fill(last_batch_.begin(), last_batch_.end(), batch_ - 2);
  std::fill(uses_.begin(), uses_.end(), 0);
  std::fill(changed_.begin(), changed_.end(), 0);
  filled_ = hand_ = 0;
}

}  // namespace trifold
