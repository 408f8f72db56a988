#include "tasks/chat/packing.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.h"
#include "core/random.h"

namespace trifold {

namespace {

// Samples with room left: of samples with equal room, the last one is filled first.
using OpenSamples = std::map<int64_t, std::vector<int64_t>>;  // [room] samples, the last one first

}  // namespace

std::vector<std::vector<int64_t>> pack_best_fit(std::span<const int64_t> lengths, int64_t room,
                                                uint64_t seed) {
  const PhiloxKey key = philox_key(seed, "order of packed sequences");
  std::vector<uint64_t> draw(lengths.size());
  for (size_t i = 0; i < draw.size(); ++i) {
    check(1 <= lengths[i] && lengths[i] <= room, "a sequence of {} tokens does not fit into samples of {}",
          lengths[i], room);
    const auto words = philox(key, i);
    draw[i] = uint64_t{words[0]} << 32 | words[1];
  }
  std::vector<int64_t> order(lengths.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  const auto before = [&](int64_t a, int64_t b) {
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    if (lengths[i] != lengths[j]) return lengths[i] > lengths[j];
    return draw[i] != draw[j] ? draw[i] < draw[j] : a < b;
  };
  std::sort(order.begin(), order.end(), before);

  std::vector<std::vector<int64_t>> samples;
  OpenSamples open;
  for (const int64_t sequence : order) {
    const int64_t length = lengths[static_cast<size_t>(sequence)];
    const auto fitting = open.lower_bound(length);
    int64_t sample = std::ssize(samples), left = room;
    if (fitting == open.end()) {
      samples.emplace_back();
    } else {
      left = fitting->first;
      sample = fitting->second.back();
      fitting->second.pop_back();
      if (fitting->second.empty()) open.erase(fitting);
    }
    samples[static_cast<size_t>(sample)].push_back(sequence);
    if (left > length) open[left - length].push_back(sample);
  }
  const auto drawn = [&](int64_t a, int64_t b) {
    const auto i = static_cast<size_t>(a), j = static_cast<size_t>(b);
    return draw[i] != draw[j] ? draw[i] < draw[j] : a < b;
  };
  for (std::vector<int64_t>& sample : samples) std::sort(sample.begin(), sample.end(), drawn);
  return samples;
}

}  // namespace trifold
