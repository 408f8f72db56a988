#include "data/id_dictionary.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace trifold {

namespace {

constexpr size_t kAhead = 16;   // keys prefetched
constexpr size_t kBatch = 256;  // keys for which room is made at a time
constexpr int kFirstBits = 10;

}  // namespace

IdDictionary::IdDictionary() : shift_(64 - kFirstBits), places_(size_t{1} << kFirstBits) {
  keys_.push_back(0);
  counts_.push_back(0);
  places_[place_of(0)] = 1;
}

size_t IdDictionary::bytes() const {
  return places_.capacity() * sizeof(uint64_t) + (keys_.capacity() + counts_.capacity()) * sizeof(uint32_t);
}

size_t IdDictionary::place_of(uint32_t key) const {
  const size_t mask = places_.size() - 1;
  size_t place = home(key);
  while (places_[place] != 0 && places_[place] >> 32 != key) place = (place + 1) & mask;
  return place;
}

void IdDictionary::reserve(size_t keys) {
  if (2 * keys <= places_.size()) return;
  check(keys < std::numeric_limits<uint32_t>::max(), "{} keys are too many for one dictionary", keys);
  size_t size = places_.size();
  while (2 * keys > size) {
    size *= 2;
    --shift_;
  }
  places_.assign(size, 0);
  for (size_t number = 0; number < keys_.size(); ++number)
    places_[place_of(keys_[number])] = uint64_t{keys_[number]} << 32 | (number + 1);
}

void IdDictionary::add(std::span<const uint32_t> keys, uint32_t* numbers) {
  while (!keys.empty()) {
    const auto batch = keys.first(std::min(keys.size(), kBatch));
    reserve(keys_.size() + batch.size());
    for (size_t i = 0; i < batch.size(); ++i) {
      if (i + kAhead < batch.size()) __builtin_prefetch(&places_[home(batch[i + kAhead])]);
      uint64_t& place = places_[place_of(batch[i])];
      if (place == 0) {
        keys_.push_back(batch[i]);
        counts_.push_back(0);
        place = uint64_t{batch[i]} << 32 | keys_.size();
      }
      const auto number = static_cast<uint32_t>(place) - 1;
      uint32_t& count = counts_[number];
      count += count == std::numeric_limits<uint32_t>::max() ? 0 : 1;
      numbers[i] = number;
    }
    keys = keys.subspan(batch.size());
    numbers += batch.size();
  }
}

void IdDictionary::find(std::span<const uint32_t> keys, uint32_t* numbers) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i + kAhead < keys.size()) __builtin_prefetch(&places_[home(keys[i + kAhead])]);
    numbers[i] = static_cast<uint32_t>(places_[place_of(keys[i])]) - 1;  // of a free place: kAbsent
  }
}

}  // namespace trifold
