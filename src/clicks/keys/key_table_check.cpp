// Whether the entries of a key table are such as batches of keys make: see key_table.h.
#include <fmt/format.h>

#include "clicks/keys/key_table.h"
#include "core/error.h"

namespace trifold {

// Why the entry at `place` cannot be there; empty if it can.
std::string KeyTable::problem_at(const Entries& entries, size_t place, uint64_t batches) const {
  const Entry& entry = entries[place];
  const bool is_owner = &entries == &owners_;
  if (entry.key == 0) return entry == Entry{} ? "" : "has no key, but a count or a batch";
  if (is_owner && entry.count == 0) return fmt::format("has key {:#x} with a count of 0", entry.key);
  if (entry.batch == 0 || entry.batch > batches)
    return fmt::format("has key {:#x} with batch {} as its last, of {}", entry.key, entry.batch, batches);
  const Bucket bucket = bucket_of(entry.key);
  if (place < bucket.first || place >= bucket.first + bucket.size)
    return fmt::format("has key {:#x}, which belongs to entries {} to {}", entry.key, bucket.first,
                       bucket.first + bucket.size - 1);
  for (size_t i = 0; bucket.place(i) != place; ++i) {
    const Entry& before = entries[bucket.place(i)];
    if (before.key == 0)
      return fmt::format("has key {:#x}, which belongs to entry {}, a free one", entry.key, bucket.place(i));
    if (before.key == entry.key)
      return fmt::format("has key {:#x}, as entry {} has", entry.key, bucket.place(i));
  }
  if (!is_owner && entry.count > 0 && find(owners_, bucket, entry.key) != kNone)
    return fmt::format("counts key {:#x}, which has a row", entry.key);
  return {};
}

void KeyTable::check_entries(const std::string& owners, const std::string& waiting, uint64_t batches) const {
  for (const Entries* entries : {&owners_, &waiting_})
    for (size_t place = 0; place < entries->size(); ++place)
      if (const std::string problem = problem_at(*entries, place, batches); !problem.empty())
        bad_input("tensor {}: entry {} {}: no run writes that", entries == &owners_ ? owners : waiting, place,
                  problem);
}

}  // namespace trifold
