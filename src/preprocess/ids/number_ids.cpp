#include "preprocess/ids/number_ids.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <queue>
#include <vector>

#include "core/error.h"
#include "preprocess/column_files.h"
#include "preprocess/ids/id_dictionary.h"

namespace trifold {

namespace {

constexpr int kMostPartitions = 1 << 12;

// The partition of a key among `count` (a power of two), independent of its slot in a dictionary.
uint32_t partition_of(uint64_t wide, int count) {
  const auto key = static_cast<uint32_t>(wide ^ (wide >> 32));
  uint32_t mixed = (key ^ (key >> 16)) * 0x85ebca6bU;
  mixed = (mixed ^ (mixed >> 13)) * 0xc2b2ae35U;
  return (mixed ^ (mixed >> 16)) & static_cast<uint32_t>(count - 1);
}

template <class Key>
class Numbering {
 public:
  explicit Numbering(const IdColumnJob& job)
      : job_(job), keys_(job.keys, RawFile::Mode::Read), scratch_(job.scratch) {}

  IdColumnResult run() {
    IdColumnResult result;
    if (!job_.given) {
      if (const auto whole = number_at_once()) return *whole;
      result.partitions = count_in_partitions();
    }
    const RawFile dictionary(job_.dictionary, RawFile::Mode::Read);
    result.dictionary_bytes = job_.given.value_or(bytes_for(largest_));
    result.rows = 2 + dictionary.size() / result.dictionary_bytes;
    result.id_bytes = id_bytes_for(result.rows);
    result.partitions = std::max(result.partitions, apply(dictionary, result));
    write_narrow_ids(RawFile(numbers_, RawFile::Mode::Read), job_.ids, result.id_bytes,
                     [](std::span<uint32_t>) {});
    return result;
  }

 private:
  int64_t threshold() const { return std::max<int64_t>(1, job_.threshold); }

  // Calls body(keys, first) for the values of the older dictionary.
  void for_each_known(const std::function<void(std::span<const Key>, int64_t)>& body) const {
    if (!job_.known) return;
    for_each_entry(RawFile(job_.known->file, RawFile::Mode::Read), job_.known->bytes, body);
  }
  int64_t known_values() const {
    return job_.known ? RawFile(job_.known->file, RawFile::Mode::Read).size() / job_.known->bytes : 0;
  }
  void check_known(int64_t values, uint32_t numbers) const {
    if (values + 1 != numbers)  // number 0 is hash 0
      bad_input("{}: the dictionary holds a hash twice, or hash 0", job_.known->file);
  }

  // One pass numbers all values, another drops the rare ones; nullopt if memory does not suffice.
  std::optional<IdColumnResult> number_at_once() {
    IdDictionary<Key> all;
    std::vector<uint32_t> chunk(static_cast<size_t>(kValuesAtOnce));
    for_each_known([&](std::span<const Key> keys, int64_t) {
      if (all.bytes() <= job_.memory) all.add(keys, chunk.data());
    });
    if (job_.known && all.bytes() > job_.memory) return std::nullopt;
    const uint32_t known = all.size() - 1;
    check_known(known_values(), all.size());
    numbers_ = scratch_.add("numbers");
    {
      RawFile numbers(numbers_, RawFile::Mode::Create);
      bool fits = true;
      for_each_chunk<Key>(keys_, [&](std::span<Key> keys, int64_t first) {
        if (!fits) return;
        all.add(keys, chunk.data());
        numbers.write_all(std::span<const uint32_t>(chunk).first(keys.size()), first);
        fits = all.bytes() <= job_.memory;
      });
      if (!fits) return std::nullopt;
    }
    IdColumnResult result;
    const auto stays = [&](uint32_t number) { return number <= known || all.count(number) >= threshold(); };
    for (uint32_t number = 1; number < all.size(); ++number)
      if (stays(number))
        result.dictionary_bytes = std::max(result.dictionary_bytes, bytes_for(all.key(number)));
    DictionaryWriter dictionary(job_.dictionary, result.dictionary_bytes);
    std::vector<uint32_t> id_of(all.size(), 1);
    id_of[0] = 0;
    for (uint32_t number = 1; number < all.size(); ++number) {
      if (!stays(number)) continue;
      id_of[number] = static_cast<uint32_t>(2 + dictionary.count());
      dictionary.add(all.key(number));
    }
    dictionary.flush();
    result.rows = 2 + dictionary.count();
    result.id_bytes = id_bytes_for(result.rows);
    const bool all_stay = result.rows == int64_t{all.size()} + 1;
    write_narrow_ids(RawFile(numbers_, RawFile::Mode::Read), job_.ids, result.id_bytes,
                     [&](std::span<uint32_t> ids) {
                       if (all_stay) {
                         for (uint32_t& id : ids) id += id == 0 ? 0 : 1;
                       } else {
                         for (uint32_t& id : ids) id = id_of[id];
                       }
                     });
    return result;
  }

  // The keys of one partition, with their places in `keys`.
  static void select(std::span<const Key> keys, int partition, int count, std::vector<Key>& selected,
                     std::vector<uint32_t>& places) {
    selected.clear();
    places.clear();
    for (size_t i = 0; i < keys.size(); ++i) {
      if (partition_of(keys[i], count) != static_cast<uint32_t>(partition)) continue;
      selected.push_back(keys[i]);
      places.push_back(static_cast<uint32_t>(i));
    }
  }

  // Calls body(keys, first) for all of a dictionary, whatever its width.
  static void for_each_entry(const RawFile& dictionary, int bytes,
                             const std::function<void(std::span<const Key>, int64_t)>& body) {
    if (bytes == static_cast<int>(sizeof(Key)))
      return for_each_chunk<Key>(dictionary, [&](std::span<Key> keys, int64_t first) { body(keys, first); });
    check(bytes < static_cast<int>(sizeof(Key)), "a dictionary of {} bytes for keys of {}", bytes,
          sizeof(Key));
    std::vector<Key> wide;
    for_each_chunk<uint32_t>(dictionary, [&](std::span<uint32_t> keys, int64_t first) {
      wide.assign(keys.begin(), keys.end());
      body(wide, first);
    });
  }

  std::string kept_file(int partition) { return scratch_.add(fmt::format("kept{}", partition)); }

  // False when the values of the partition do not fit.
  bool count_partition(int partition, int count) {
    IdDictionary<Key> some;
    std::vector<uint64_t> first_seen{0};
    std::vector<Key> selected;
    std::vector<uint32_t> places, numbers(static_cast<size_t>(kValuesAtOnce));
    bool fits = true;
    const auto check_room = [&] {
      fits = some.bytes() + first_seen.capacity() * sizeof(uint64_t) <= job_.memory;
    };
    for_each_known([&](std::span<const Key> keys, int64_t first) {
      if (!fits) return;
      select(keys, partition, count, selected, places);
      some.add(selected, numbers.data());
      for (const uint32_t place : places) first_seen.push_back(static_cast<uint64_t>(first) + place);
      check_room();
    });
    if (!fits) return false;
    check_known(std::ssize(first_seen) - 1, some.size());
    const uint32_t known = some.size() - 1;
    const auto behind = static_cast<uint64_t>(known_values());
    for_each_chunk<Key>(keys_, [&](std::span<Key> keys, int64_t first) {
      if (!fits) return;
      select(keys, partition, count, selected, places);
      some.add(selected, numbers.data());
      for (size_t i = 0; i < selected.size(); ++i)  // new numbers are consecutive
        if (numbers[i] == first_seen.size())
          first_seen.push_back(behind + static_cast<uint64_t>(first) + places[i]);
      check_room();
    });
    if (!fits) return false;
    ColumnWriter<KeptKey> kept(kept_file(partition));
    for (uint32_t number = 1; number < some.size(); ++number) {
      if (number > known && some.count(number) < threshold()) continue;
      kept.add({first_seen[number], some.key(number)});
      largest_ = std::max<uint64_t>(largest_, some.key(number));
    }
    kept.flush();
    return true;
  }

  // Writes the dictionary; returns the number of partitions used.
  int count_in_partitions() {
    for (int count = 2; count <= kMostPartitions; count *= 2) {
      int partition = 0;
      while (partition < count && count_partition(partition, count)) ++partition;
      if (partition < count) continue;
      merge(count);
      return count;
    }
    fail("{}: the dictionary needs more memory than the {} bytes allowed for it", job_.keys, job_.memory);
  }

  void merge(int count) {
    std::vector<KeptKeyReader> readers;
    for (int p = 0; p < count; ++p) readers.emplace_back(kept_file(p));
    using Head = std::pair<uint64_t, std::pair<uint64_t, size_t>>;  // first seen, key, reader
    std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
    const auto push = [&](size_t reader) {
      if (const auto kept = readers[reader].next()) heads.push({kept->first, {kept->key, reader}});
    };
    for (size_t r = 0; r < readers.size(); ++r) push(r);
    DictionaryWriter dictionary(job_.dictionary, bytes_for(largest_));
    while (!heads.empty()) {
      const auto [key, reader] = heads.top().second;
      heads.pop();
      dictionary.add(key);
      push(reader);
    }
    dictionary.flush();
  }

  // Writes the ids of all samples to the file numbers_, as u32; with one pass for each part of the dictionary that fits
  // into memory. Returns the number of passes.
  int apply(const RawFile& dictionary, const IdColumnResult& result) {
    // Bytes per entry in the worst case, just after the table grew.
    constexpr int64_t kBytesEach = sizeof(Key) == 4 ? 40 : 80;
    int64_t parts = 1;
    while (result.rows * kBytesEach / parts > static_cast<int64_t>(job_.memory) && parts < kMostPartitions)
      parts *= 2;
    const auto count = static_cast<int>(parts);
    numbers_ = scratch_.add("numbers");
    RawFile out(numbers_, RawFile::Mode::Create);
    std::vector<Key> selected;
    std::vector<uint32_t> places, numbers(static_cast<size_t>(kValuesAtOnce)),
        ids(static_cast<size_t>(kValuesAtOnce));
    for (int partition = 0; partition < count; ++partition) {
      IdDictionary<Key> some;
      std::vector<uint32_t> id_of{0};
      for_each_entry(dictionary, result.dictionary_bytes, [&](std::span<const Key> keys, int64_t first) {
        select(keys, partition, count, selected, places);
        some.add(selected, numbers.data());
        for (const uint32_t place : places) id_of.push_back(static_cast<uint32_t>(2 + first) + place);
      });
      if (id_of.size() != some.size())
        bad_input("{}: the dictionary holds a hash twice, or hash 0", job_.dictionary);
      for_each_chunk<Key>(keys_, [&](std::span<Key> keys, int64_t first) {
        const std::span<uint32_t> here(ids.data(), keys.size());
        if (partition == 0) {
          std::transform(keys.begin(), keys.end(), here.begin(), [](Key key) { return key == 0 ? 0U : 1U; });
        } else {
          out.read_all(here, first);
        }
        select(keys, partition, count, selected, places);
        some.find(selected, numbers.data());
        for (size_t i = 0; i < selected.size(); ++i)
          if (numbers[i] != IdDictionary<Key>::kAbsent) here[places[i]] = id_of[numbers[i]];
        out.write_all(std::span<const uint32_t>(here), first);
      });
    }
    return count;
  }

  const IdColumnJob& job_;
  RawFile keys_;
  ScratchFiles scratch_;
  std::string numbers_;
  uint64_t largest_ = 0;  // key of the dictionary, if it was made in partitions
};

}  // namespace

int id_bytes_for(int64_t rows) { return rows <= 256 ? 1 : rows <= 65536 ? 2 : 4; }

IdColumnResult number_ids(const IdColumnJob& job) {
  return job.key_bytes == 4 ? Numbering<uint32_t>(job).run() : Numbering<uint64_t>(job).run();
}

IdColumnResult number_hashed_ids(const IdColumnJob& job, int64_t rows) {
  const RawFile keys(job.keys, RawFile::Mode::Read);
  const IdColumnResult result{rows, id_bytes_for(rows)};
  write_narrow_ids(keys, job.ids, result.id_bytes, [&](std::span<uint32_t> ids) {
    for (uint32_t& id : ids) id = static_cast<uint32_t>(id % static_cast<uint64_t>(rows));
  });
  return result;
}

}  // namespace trifold
