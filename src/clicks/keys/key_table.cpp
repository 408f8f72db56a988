#include "clicks/keys/key_table.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "clicks/keys/mixed_key.h"
#include "core/error.h"

namespace trifold {

namespace {

constexpr uint32_t kMost = std::numeric_limits<uint32_t>::max();
constexpr size_t kAhead = 12;  // keys prefetched ahead of their lookup

bool counts_waiting(const KeyRule& rule, bool learns) {
  return learns && (rule.admission > 1 || rule.eviction == KeyEviction::Rarest);
}

}  // namespace

KeyTable::KeyTable(int64_t rows, const KeyRule& rule, bool learns) : rule_(rule) {
  check(rows > kFirstRow, "a table of {} rows has no row for a key", rows);
  check(rule.admission >= 1, "a row after {} occurrences", rule.admission);
  owners_.resize(static_cast<size_t>(rows - kFirstRow));
  if (counts_waiting(rule, learns)) {
    waiting_.resize(owners_.size());
    counts_ = KeyCounts(owners_.size());
  }
  const uint64_t all = owners_.size(), buckets = (all + kBucket - 1) / kBucket;
  for (uint64_t bucket = 0; bucket <= buckets; ++bucket)
    starts_.push_back(static_cast<uint32_t>(bucket * all / buckets));
}

size_t KeyTable::bytes(int64_t rows, const KeyRule& rule, bool learns) {
  const auto entries = static_cast<size_t>(rows - kFirstRow);
  return entries * sizeof(Entry) +
         (counts_waiting(rule, learns) ? entries * sizeof(Entry) + KeyCounts::bytes(entries) : 0);
}

KeyTable::Bucket KeyTable::bucket_of(uint64_t key) const {
  const uint64_t hash = mixed_key(key);
  const uint64_t bucket = ((hash >> 32) * (starts_.size() - 1)) >> 32;
  const uint64_t first = starts_[bucket];
  const uint64_t size = starts_[bucket + 1] - first;
  return {first, size, ((hash & kMost) * size) >> 32};
}

void KeyTable::prefetch(uint64_t key) const {
  const Bucket bucket = bucket_of(key);
  __builtin_prefetch(&owners_[bucket.place(0)]);
}

// A place that was taken is never free again, so a search may end at a free one.
size_t KeyTable::find(const Entries& entries, const Bucket& bucket, uint64_t key) {
  for (size_t i = 0; i < bucket.size; ++i) {
    const size_t place = bucket.place(i);
    if (entries[place].key == key) return place;
    if (entries[place].key == 0) return kNone;
  }
  return kNone;
}

size_t KeyTable::place_for(const Entries& entries, const Bucket& bucket, KeyEviction eviction,
                           uint32_t count) const {
  size_t best = kNone;
  const auto rank = [&](const Entry& entry) {
    return eviction == KeyEviction::Oldest ? std::pair(entry.batch, entry.count)
                                           : std::pair(entry.count, entry.batch);
  };
  for (size_t i = 0; i < bucket.size; ++i)
    if (const size_t place = bucket.place(i); entries[place].key == 0) return place;
  if (eviction == KeyEviction::None) return kNone;
  for (size_t place = bucket.first; place < bucket.first + bucket.size; ++place) {
    const Entry& entry = entries[place];
    if (entry.count == 0) return place;  // its key was given a row
    if (entry.batch == batch_) continue;
    if (best == kNone || rank(entry) < rank(entries[best])) best = place;
  }
  if (best != kNone && eviction == KeyEviction::Rarest && entries[best].count > count) return kNone;
  return best;
}

void KeyTable::note(const Entries& entries, size_t place) {
  if (entries[place].batch != batch_) changes_.push_back({&entries == &owners_, place, entries[place]});
}

void KeyTable::count_owner(size_t place) {
  note(owners_, place);
  Entry& entry = owners_[place];
  entry.count += entry.count == kMost ? 0 : 1;
  entry.batch = batch_;
}

void KeyTable::take(std::span<const uint64_t> keys) {
  forget_last();
  unknown_.clear();
  if (std::all_of(keys.begin(), keys.end(), [](uint64_t key) { return key == 0; })) return;
  check(batch_ < kMost, "a table of keys has taken {} batches, the most it can", batch_);
  ++batch_;
  // First the known keys, so that none of this batch loses its row.
  for (size_t i = 0; i < keys.size(); ++i) {
    const uint64_t key = keys[i];
    if (i + kAhead < keys.size()) prefetch(keys[i + kAhead]);
    if (key == 0) continue;
    const size_t place = find(owners_, bucket_of(key), key);
    if (place == kNone)
      unknown_.push_back(key);
    else
      count_owner(place);
  }
  for (const uint64_t key : unknown_) take_unknown(key);
}

void KeyTable::take_unknown(uint64_t key) {
  const Bucket bucket = bucket_of(key);
  if (const size_t place = find(owners_, bucket, key); place != kNone) return count_owner(place);
  uint32_t count = 1;
  const bool waits = !waiting_.empty();
  const size_t waiting = waits ? wait(bucket, key) : kNone;
  if (waiting != kNone)
    count = waiting_[waiting].count;
  else if (waits)
    counts_.keep(key, count = counts_.of(key) + 1, raised_);
  if (count < rule_.admission) return;
  const size_t place = place_for(owners_, bucket, rule_.eviction, count);
  if (place == kNone) return;
  note(owners_, place);
  set_aside(owners_[place]);
  owners_[place] = {key, count, batch_};
  begun_.push_back(static_cast<int32_t>(kFirstRow + static_cast<int64_t>(place)));
  if (waiting != kNone) waiting_[waiting].count = 0;
}

void KeyTable::set_aside(const Entry& entry) {
  if (entry.count > 0) counts_.keep(entry.key, entry.count, raised_);
}

// An entry of count 0 is of a key that got a row, and has perhaps lost it.
size_t KeyTable::wait(const Bucket& bucket, uint64_t key) {
  size_t place = find(waiting_, bucket, key);
  if (place == kNone) place = place_for(waiting_, bucket, KeyEviction::Oldest, 0);
  if (place == kNone) return kNone;
  note(waiting_, place);
  Entry& entry = waiting_[place];
  if (entry.key != key) {
    set_aside(entry);
    entry = {key, 0, batch_};
  }
  if (entry.count == 0) entry.count = counts_.of(key);
  entry.count += entry.count == kMost ? 0 : 1;
  entry.batch = batch_;
  return place;
}

void KeyTable::forget_last() {
  changes_.clear();
  raised_.clear();
  begun_.clear();
  other_batch_ = batch_;
}

// A counter may have been raised several times, so changes are undone from the last to the first, and redone from the
// first.
void KeyTable::swap_last() {
  for (Change& change : changes_)
    std::swap((change.is_owner ? owners_ : waiting_)[change.place], change.before);
  std::reverse(raised_.begin(), raised_.end());
  for (KeyCounts::Change& change : raised_) counts_.swap(change);
  std::swap(batch_, other_batch_);
}

int32_t KeyTable::row_of(uint64_t key) const {
  if (key == 0) return kMissingRow;
  const size_t place = find(owners_, bucket_of(key), key);
  return place == kNone ? kOtherRow : static_cast<int32_t>(kFirstRow + static_cast<int64_t>(place));
}

void KeyTable::loaded(uint32_t batches) {
  batch_ = batches;
  for (const Entries* entries : {&owners_, &waiting_})
    for (const Entry& entry : *entries) batch_ = std::max(batch_, entry.batch);
  forget_last();
}

}  // namespace trifold
