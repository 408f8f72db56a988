#include "embedding/stored/row_cache.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace trifold {

namespace {

constexpr size_t kAhead = 16;  // ids whose entries of the index are prefetched

}  // namespace

RowCache::RowCache(const OpTable& ops, const RowStore& store, std::vector<RowArray> arrays, DType dtype,
                   int64_t rows, int64_t slots, int64_t batch_rows, InitialRow initial, const RowDisk* disk)
    : store_(store),
      arrays_(std::move(arrays)),
      disk_(disk),
      rows_(rows),
      slots_(slots),
      batch_rows_(batch_rows),
      dtype_(dtype),
      initial_(std::move(initial)),
      index_(slots),
      row_of_slot_(static_cast<size_t>(slots), -1),
      last_batch_(static_cast<size_t>(slots), -2),
      uses_(static_cast<size_t>(slots), 0),
      changed_(static_cast<size_t>(slots), 0),
      number_(static_cast<size_t>(slots), -1),
      written_(static_cast<size_t>(rows + 63) / 64, 0) {
  check(slots >= std::min(rows, 2 * batch_rows), "{} slots for batches of {} rows", slots, batch_rows);
  check((store.file() != nullptr) == (disk != nullptr), "rows of a file need a queue");
  missing_.reserve(static_cast<size_t>(batch_rows));
  moves_.reserve(static_cast<size_t>(batch_rows));
  reads_.reserve(disk == nullptr ? 0 : static_cast<size_t>(batch_rows));
  if (ops.device != nullptr) transfer_.emplace(ops, store, arrays_, dtype, rows, slots, batch_rows);
  for (size_t a = 0; disk != nullptr && a < arrays_.size(); ++a) planes_.emplace_back(*this, a);
}

size_t RowCache::bookkeeping_bytes(int64_t rows, int64_t slots, int64_t batch_rows) {
  const size_t of_slot = 3 * sizeof(int32_t) + 2 * sizeof(uint8_t);
  return RowIndex::bytes(slots) + static_cast<size_t>(slots) * of_slot +
         static_cast<size_t>(rows + 63) / 64 * sizeof(uint64_t) +
         static_cast<size_t>(batch_rows) * (sizeof(int32_t) + sizeof(RowMove) + sizeof(Read));
}

// Returns a slot whose row is not in the last two batches; the row is still in the index.
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

void RowCache::begin_bring_in(std::span<int32_t> ids, bool changes, Stream& stream) {
  ++batch_;
  missing_.clear();
  moves_.clear();
  reads_.clear();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (i + kAhead < ids.size()) index_.prefetch(ids[i + kAhead]);
    const int64_t slot = index_.find(ids[i]);
    if (slot == RowIndex::kNone) {
      missing_.push_back(ids[i]);
      ids[i] = ~ids[i];  // negative until its row has a slot
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
  plan_moves(changes);
  if (disk_ != nullptr) let_leave(stream);
}

void RowCache::plan_moves(bool changes) {
  for (const int32_t row : missing_) {
    if (index_.find(row) != RowIndex::kNone) continue;  // listed twice
    ++counts_.wanted;
    RowMove move{free_slot(), row, -1};
    const auto slot = static_cast<size_t>(move.slot);
    if (row_of_slot_[slot] >= 0) {
      index_.erase(row_of_slot_[slot]);
      if (changed_[slot] != 0) move.victim = row_of_slot_[slot];
    }
    row_of_slot_[slot] = row;
    last_batch_[slot] = batch_;
    uses_[slot] = 0;
    changed_[slot] = static_cast<uint8_t>(changes);
    index_.assign(row, move.slot);
    moves_.push_back(move);
  }
}

// Writes victims to the file.
void RowCache::let_leave(Stream& stream) {
  if (transfer_) transfer_->fetch_victims(moves_, stream);
  int64_t at = 0;
  for (const RowMove& move : moves_) {
    if (move.victim < 0) continue;
    std::byte* const record = store_.file()->put(move.victim, disk_->queue, disk_->merger);
    for (size_t a = 0; a < arrays_.size(); ++a)
      std::memcpy(record + arrays_[a].begin,
                  transfer_ ? transfer_->staged(a, at) : arrays_[a].slot(move.slot), arrays_[a].row_bytes);
    set_written(move.victim);
    ++at;
  }
}

// The memory that first receives array `array` of the row that a move loads.
std::byte* RowCache::destination(size_t array, int64_t move) const {
  return transfer_ ? transfer_->staged(array, move)
                   : arrays_[array].slot(moves_[static_cast<size_t>(move)].slot);
}

void RowCache::enter(int64_t move, const std::byte* record) const {
  for (size_t a = 0; a < arrays_.size(); ++a)
    std::memcpy(destination(a, move), record + arrays_[a].begin, arrays_[a].row_bytes);
}

// Reads rows of the same page together.
void RowCache::start_reads() {
  if (disk_ == nullptr) return;
  const RowFile& file = *store_.file();
  for (int64_t m = 0; m < std::ssize(moves_); ++m) {
    const int32_t row = moves_[static_cast<size_t>(m)].row;
    if (!is_written(row)) {
      begin_row(arrays_, row, initial_, [&](const RowArray& array) {
        return destination(static_cast<size_t>(&array - arrays_.data()), m);
      });
      continue;
    }
    const RowFile::Location location = file.find(row);
    if (location.memory != nullptr)
      enter(m, location.memory);
    else
      reads_.push_back(
          {location.page, location.pages, static_cast<uint32_t>(location.offset), static_cast<int32_t>(m)});
  }
  counts_.read += std::ssize(reads_);
  std::sort(reads_.begin(), reads_.end(), [](const Read& a, const Read& b) {
    return a.page != b.page ? a.page < b.page : a.pages > b.pages;
  });
  for (size_t i = 0; i < reads_.size(); ++i)
    if (i == 0 || reads_[i].page != reads_[i - 1].page)
      disk_->queue.read(file.pages(), reads_[i].page, reads_[i].pages, *this, static_cast<int64_t>(i));
}

void RowCache::take(int64_t tag, const std::byte* pages) {
  for (auto i = static_cast<size_t>(tag);
       i < reads_.size() && reads_[i].page == reads_[static_cast<size_t>(tag)].page; ++i)
    enter(reads_[i].move, pages + reads_[i].offset);
}

void RowCache::end_bring_in(std::span<int32_t> ids, Numbered* numbered, Stream& stream) {
  if (!moves_.empty()) {
    if (store_.is_shared())
      move_shared(false, stream);
    else if (transfer_)
      transfer_->send_rows(moves_, stream);
    for (int32_t& id : ids)
      if (id < 0) id = static_cast<int32_t>(index_.find(~id));
  }
  if (numbered != nullptr) number(ids, *numbered);
  if (disk_ != nullptr) store_.file()->tidy(disk_->merger);
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

// `anew`: rows are initialised instead of read from the store.
void RowCache::move_shared(bool anew, Stream& stream) {
  transfer_->carry_out(
      moves_, [this, anew](int64_t row) { return !anew && is_written(row); }, initial_, stream);
  for (const RowMove& move : moves_) {
    if (move.victim >= 0) set_written(move.victim);
    set_written(move.row);
  }
}

// A save may still need a row's old value after its batch was brought in, so the row is initialised here, although
// bring_in has then read its old values in vain.
void RowCache::begin_anew(std::span<const int32_t> rows, Stream& stream) {
  moves_.clear();
  for (const int32_t row : rows) {
    const int64_t slot = index_.find(row);
    if (slot != RowIndex::kNone) {
      changed_[static_cast<size_t>(slot)] = 1;
      moves_.push_back({static_cast<int32_t>(slot), row, -1});
    } else if (is_written(row)) {
      begin_stored(row);
    }
  }
  if (disk_ != nullptr) disk_->queue.finish();
  if (store_.is_shared()) {
    move_shared(true, stream);
  } else {
    for (int64_t m = 0; m < std::ssize(moves_); ++m)
      begin_row(arrays_, moves_[static_cast<size_t>(m)].row, initial_, [&](const RowArray& array) {
        return destination(static_cast<size_t>(&array - arrays_.data()), m);
      });
    if (transfer_) transfer_->send_rows(moves_, stream);
  }
  // The next moves use the same staging area, on another stream.
  if (transfer_) stream.synchronize();
  moves_.clear();
}

void RowCache::begin_stored(int32_t row) {
  std::byte* const record = disk_ == nullptr ? nullptr : store_.file()->put(row, disk_->queue, disk_->merger);
  begin_row(arrays_, row, initial_, [&](const RowArray& array) {
    return disk_ == nullptr ? store_.data() + array.place_of(row) : record + array.begin;
  });
}

// Writes changed slots of a device back to the store.
void RowCache::write_changed(Stream& stream) {
  const auto flush = [&] {
    if (disk_ != nullptr) {
      let_leave(stream);
      disk_->queue.finish();
    } else {
      transfer_->carry_out(
          moves_, [](int64_t) { return true; }, initial_, stream);
      stream.synchronize();
    }
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

// Slots stay marked as changed: the next batch, which is already fetched, will change its rows.
void RowCache::settle(Stream& stream) {
  if (transfer_) write_changed(stream);
  if (disk_ != nullptr)
    store_.file()->settle(disk_->queue, disk_->merger);
  else
    settle_shared(stream);
}

// Initialises rows that were never used.
void RowCache::settle_shared(Stream& stream) {
  constexpr int64_t kGrain = 1 << 14;
  stream.pool().parallel_for(rows_, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      if (!is_written(row)) initial_(row, store_.data() + arrays_.front().place_of(row));
  });
  std::fill(written_.begin(), written_.end(), ~uint64_t{0});
}

}  // namespace trifold
