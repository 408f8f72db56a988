// Packing puts sequences of different lengths into samples of one length.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace trifold {

// Packs sequences into samples of `room` tokens by best fit, the longest first: each goes to the sample with the least
// room that is enough for it. Returns the sequences of each sample, in the order of their positions. The order of
// sequences of equal length, and of those in a sample, is drawn from `seed`: the result is a pure function of both
// arguments. Takes O(n log n). Failure for a length outside [1, room].
std::vector<std::vector<int64_t>> pack_best_fit(std::span<const int64_t> lengths, int64_t room,
                                                uint64_t seed);

}  // namespace trifold
