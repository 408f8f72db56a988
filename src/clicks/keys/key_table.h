// KeyTable assigns the rows of an embedding table to 64-bit keys while a model trains, so that neither the keys nor how
// many there are need to be known beforehand. The table has a fixed number of rows:
//
//   row 0    a missing value (key 0)
//   row 1    all keys that have no row of their own
//   2 ...    one key each
//
// Once per step `take` gets all keys of the global batch, in the order of its samples. A key that has occurred
// `admission` times becomes the *owner* of a row. If no row is free, `eviction` chooses the owner that loses its row,
// never a key of the current batch. Rows with a new owner are listed, because their vectors and optimizer state must be
// initialised again. The table depends on the sequence of batches alone, so ranks that take the same batches have equal
// tables on any mesh.
//
// The rows form a hash table in buckets of at most kBucket rows, as in HierarchicalKV (NVIDIA) and, with larger
// buckets, in TorchRec's zero-collision hashing: a key's hash chooses its bucket, in which it may own any row. A key
// may therefore be evicted while other buckets still have free rows, but only once nearly all rows are used.
//
// With an `admission` above 1, and with `eviction` Rarest, keys without a row (*waiting* keys) are counted in a second
// hash table of the same size. If a bucket of it is full, its key seen longest ago is dropped. The counts of dropped
// keys and of keys that lose their rows are kept in a sketch (clicks/keys/key_counts.h). No count is too low; the
// sketch bounds how often a count is too high.
//
// Layout in a checkpoint: three tensors for each table of keys with R rows, saved by rank 0. Integers are
// little-endian; checksums are the checkpoint's (docs/checkpoint_format.md).
//
//   keys/<weight>          i64 [R - 2, 2]   entry i belongs to row i + 2
//   waiting_keys/<weight>  i64 [R - 2, 2]   entry i is place i of the hash table of waiting keys
//   key_counts/<weight>    u16 [4, width]   the sketch's counters, row by row
//                                           (the last two only if waiting keys are counted)
//
//   entry (16 bytes)       offset   bytes   field
//                          0        8       key, u64; 0: the place is free, and the other fields are 0
//                          8        4       count, u32: occurrences, at most 2^32 - 1; 0: a waiting key that got a row
//                          12       4       batch, u32: the last batch that had the key, counted from 1
//
// `row_of` may be called from many threads at a time, the other functions from one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "clicks/click_batch.h"
#include "clicks/keys/key_counts.h"
#include "config/fields/recommend_choices.h"

namespace trifold {

struct KeyRule {
  int64_t admission = 1;  // occurrences that a key needs to get a row
  KeyEviction eviction = KeyEviction::Oldest;
};

class KeyTable {
 public:
  static constexpr int32_t kMissingRow = ClickTable::kMissingRow;
  static constexpr int32_t kOtherRow = ClickTable::kOtherRow;
  static constexpr int64_t kFirstRow = 2;  // first row that a key can own
  static constexpr int64_t kBucket = 64;   // rows in a bucket

  // The entry of a key; all zero: free. A checkpoint stores its bytes as two i64.
  struct Entry {
    uint64_t key = 0;
    uint32_t count = 0;  // occurrences, up to 2^32 - 1
    uint32_t batch = 0;  // the last batch that had it, counted from 1
    bool operator==(const Entry&) const = default;
  };

  // `rows` above kFirstRow. If the table never takes batches (`learns` is false), keys without a row are not counted.
  KeyTable(int64_t rows, const KeyRule& rule, bool learns);

  // Takes the keys of the next batch. A batch without keys, and key 0, change nothing.
  void take(std::span<const uint64_t> keys);
  // The rows that got a new owner in the last `take`.
  std::span<const int32_t> begun() const { return begun_; }
  // Undoes the last `take`; a second call redoes it.
  void swap_last();
  // How many batches with keys were taken so far.
  uint32_t batches() const { return batch_; }

  int32_t row_of(uint64_t key) const;

  // Owners by row, from kFirstRow on; and waiting keys in the order of their hash table (empty if they are not
  // counted).
  std::span<Entry> owners() { return owners_; }
  std::span<Entry> waiting() { return waiting_; }
  // The sketch with the counts of all other keys (empty if they are not counted).
  KeyCounts& counts() { return counts_; }
  // To be called after a checkpoint was loaded into owners(), waiting() and counts(). `batches`: how many batches the
  // checkpoint's table had taken; 0, if unknown, stands for the largest Entry::batch.
  void loaded(uint32_t batches);
  // BadInput if the entries cannot result from at most `batches` batches. `owners` and `waiting` are the names of their
  // tensors in the message.
  void check_entries(const std::string& owners, const std::string& waiting, uint64_t batches) const;

  size_t bytes() {
    return (owners_.size() + waiting_.size()) * sizeof(Entry) + counts_.counters().size_bytes();
  }
  static size_t bytes(int64_t rows, const KeyRule& rule, bool learns);

 private:
  // The places of a key: `size` of them from `first` on, searched from `start` on.
  struct Bucket {
    size_t first, size, start;
    size_t place(size_t i) const { return first + start + i - (start + i < size ? 0 : size); }  // i < size
  };
  // The state of a place before the last batch.
  struct Change {
    bool is_owner;
    size_t place;
    Entry before;
  };
  using Entries = std::vector<Entry>;
  static constexpr size_t kNone = ~size_t{0};

  Bucket bucket_of(uint64_t key) const;
  // Prefetches the first entries that a search for the key reads.
  void prefetch(uint64_t key) const;
  static size_t find(const Entries& entries, const Bucket& bucket, uint64_t key);
  // A place in the bucket that is free or whose key may be evicted; kNone if there is none.
  size_t place_for(const Entries& entries, const Bucket& bucket, KeyEviction eviction, uint32_t count) const;
  void count_owner(size_t place);
  void take_unknown(uint64_t key);
  // Counts a key without a row in waiting_; kNone if its bucket is full of keys of this batch.
  size_t wait(const Bucket& bucket, uint64_t key);
  // Keeps the count of an entry in the sketch before it is overwritten.
  void set_aside(const Entry& entry);
  void forget_last();
  std::string problem_at(const Entries& entries, size_t place, uint64_t batches) const;
  // Records the state of a place for swap_last. To be called before a batch first changes it.
  void note(const Entries& entries, size_t place);

  KeyRule rule_;
  Entries owners_, waiting_;
  KeyCounts counts_;
  std::vector<uint32_t> starts_;  // first place of each bucket, and the end of the last
  uint32_t batch_ = 0;            // number of the current batch
  uint32_t other_batch_ = 0;      // batch_ before the last `take`, or after it while that is undone
  std::vector<Change> changes_;
  std::vector<KeyCounts::Change> raised_;  // counters that the last batch raised
  std::vector<uint64_t> unknown_;
  std::vector<int32_t> begun_;
};

}  // namespace trifold
