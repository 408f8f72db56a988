#include "preprocess/ids/id_dictionary.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace trifold {

namespace {

constexpr size_t kAhead = 16;   // keys prefetched
constexpr size_t kBatch = 256;  // keys for which memory is reserved at a time
constexpr int kFirstBits = 10;

}  // namespace

template <class Key>
IdDictionary<Key>::IdDictionary() : shift_(64 - kFirstBits), places_(size_t{1} << kFirstBits) {
  keys_.push_back(0);
  counts_.push_back(0);
  places_[place_of(0)] = {0, 1};
}

template <class Key>
size_t IdDictionary<Key>::bytes() const {
  return places_.capacity() * sizeof(Place) + keys_.capacity() * sizeof(Key) +
         counts_.capacity() * sizeof(uint32_t);
}

template <class Key>
size_t IdDictionary<Key>::place_of(Key key) const {
  const size_t mask = places_.size() - 1;
  size_t place = home(key);
  while (places_[place].behind != 0 && places_[place].key != key) place = (place + 1) & mask;
  return place;
}

template <class Key>
void IdDictionary<Key>::reserve(size_t keys) {
  if (2 * keys <= places_.size()) return;
  check(keys < std::numeric_limits<uint32_t>::max(), "{} keys are too many for one dictionary", keys);
  size_t size = places_.size();
  while (2 * keys > size) {
    size *= 2;
    --shift_;
  }
  places_.assign(size, Place{});
  for (size_t number = 0; number < keys_.size(); ++number)
    places_[place_of(keys_[number])] = {keys_[number], static_cast<uint32_t>(number + 1)};
}

template <class Key>
void IdDictionary<Key>::add(std::span<const Key> keys, uint32_t* numbers) {
  while (!keys.empty()) {
    const auto batch = keys.first(std::min(keys.size(), kBatch));
    reserve(keys_.size() + batch.size());
    for (size_t i = 0; i < batch.size(); ++i) {
      if (i + kAhead < batch.size()) __builtin_prefetch(&places_[home(batch[i + kAhead])]);
      Place& place = places_[place_of(batch[i])];
      if (place.behind == 0) {
        keys_.push_back(batch[i]);
        counts_.push_back(0);
        place = {batch[i], static_cast<uint32_t>(keys_.size())};
      }
      const uint32_t number = place.behind - 1;
      uint32_t& count = counts_[number];
      count += count == std::numeric_limits<uint32_t>::max() ? 0 : 1;
      numbers[i] = number;
    }
    keys = keys.subspan(batch.size());
    numbers += batch.size();
  }
}

template <class Key>
void IdDictionary<Key>::find(std::span<const Key> keys, uint32_t* numbers) const {
  for (size_t i = 0; i < keys.size(); ++i) {
    if (i + kAhead < keys.size()) __builtin_prefetch(&places_[home(keys[i + kAhead])]);
    numbers[i] = places_[place_of(keys[i])].behind - 1;  // kAbsent for a free place
  }
}

template class IdDictionary<uint32_t>;
template class IdDictionary<uint64_t>;

}  // namespace trifold
