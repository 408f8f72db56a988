#include "preprocess/ids/unknown_ids.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "clicks/click_batch.h"
#include "preprocess/column_files.h"

namespace trifold {

namespace {

// Values from place `first` on.
template <class T>
std::vector<T> chunk_of(const RawFile& file, int64_t first) {
  std::vector<T> chunk(static_cast<size_t>(std::min(kValuesAtOnce, count_values<T>(file) - first)));
  file.read_all(std::span<T>(chunk), first);
  return chunk;
}

// Calls body(id, place) for all ids of a file.
template <class Id, class Body>
void for_each_id(const RawFile& ids, Body body) {
  for_each_chunk<Id>(ids, [&](std::span<Id> chunk, int64_t first) {
    for (size_t i = 0; i < chunk.size(); ++i)
      body(static_cast<int64_t>(chunk[i]), first + static_cast<int64_t>(i));
  });
}

template <class Key, class Id>
UnknownIds count_ids(const IdColumnJob& job, int64_t known_rows, const std::string& hashes) {
  std::optional<ColumnWriter<uint64_t>> kept;
  if (!hashes.empty()) kept.emplace(hashes);
  const RawFile key_file(job.keys, RawFile::Mode::Read);
  std::vector<Key> keys;  // a chunk, from place `first` on
  int64_t first = 0;
  UnknownIds counts;
  for_each_id<Id>(RawFile(job.ids, RawFile::Mode::Read), [&](int64_t id, int64_t place) {
    counts.values += id != ClickTable::kMissingRow ? 1 : 0;
    counts.added += id >= known_rows ? 1 : 0;
    if (id != ClickTable::kOtherRow) return;
    ++counts.unknown;
    if (!kept) return;
    if (keys.empty() || place >= first + std::ssize(keys)) keys = chunk_of<Key>(key_file, first = place);
    kept->add(uint64_t{keys[static_cast<size_t>(place - first)]});
  });
  if (kept) kept->flush();
  return counts;
}

template <class Key>
UnknownIds count_keys(const IdColumnJob& job, int id_bytes, int64_t known_rows, const std::string& hashes) {
  if (id_bytes == 1) return count_ids<Key, uint8_t>(job, known_rows, hashes);
  if (id_bytes == 2) return count_ids<Key, uint16_t>(job, known_rows, hashes);
  return count_ids<Key, uint32_t>(job, known_rows, hashes);
}

}  // namespace

UnknownIds count_unknown_ids(const IdColumnJob& job, int id_bytes, int64_t known_rows,
                             const std::string& hashes) {
  return job.key_bytes == 4 ? count_keys<uint32_t>(job, id_bytes, known_rows, hashes)
                            : count_keys<uint64_t>(job, id_bytes, known_rows, hashes);
}

}  // namespace trifold
