#include "data/permutation.h"

#include <utility>

#include "core/error.h"

namespace trifold {

namespace {

constexpr uint64_t kRounds = 4;

}  // namespace

Permutation::Permutation(PhiloxKey key, int64_t count) : key_(key), count_(static_cast<uint64_t>(count)) {
  check(count >= 1, "a permutation has {} elements; at least 1 is needed", count);
  while (half_bits_ < 31 && (uint64_t{1} << (2 * half_bits_)) < count_) ++half_bits_;
}

uint64_t Permutation::feistel(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round)
    left = std::exchange(right, (left ^ mixed(round, right)) & mask);
  return left << half_bits_ | right;
}

uint64_t Permutation::undo(uint64_t value) const {
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_;
  uint64_t right = value & mask;
  for (uint64_t round = kRounds; round-- > 0;)
    right = std::exchange(left, (right ^ mixed(round, left)) & mask);
  return left << half_bits_ | right;
}

int64_t Permutation::operator()(int64_t i) const {
  auto value = static_cast<uint64_t>(i);
  do {
    value = feistel(value);
  } while (value >= count_);
  return static_cast<int64_t>(value);
}

int64_t Permutation::inverse(int64_t element) const {
  auto value = static_cast<uint64_t>(element);
  do {
    value = undo(value);
  } while (value >= count_);
  return static_cast<int64_t>(value);
}

}  // namespace trifold
