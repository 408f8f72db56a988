// GptIndices: Megatron-LM's order of the samples of an indexed data set, kept in memory.
//
// The sequences are concatenated in a shuffled order (once per epoch) and cut into samples of `seq_length` tokens plus
// the label of the last; neighbouring samples share that token. A second shuffle orders the samples. Three arrays
// define the order:
//   document_index the order of the sequences: `epochs` copies of `sequences`, shuffled. If less than 80 % of the last
//                   epoch is needed, it is shuffled separately, so that the unused part comes from it alone and not
//                   from all epochs;
//   sample_index    where sample i starts: (position in document_index, token in that sequence). It ends
//                   where sample i + 1 starts;
//   shuffle_index   sample k of the training order is sample shuffle_index[k] of sample_index.
//
// One flaw of Megatron-LM is kept: the order depends on the number of samples requested, if that changes the number of
// epochs or whether the last epoch is shuffled separately. Runs within one epoch are not affected.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/function_ref.h"

namespace trifold {

struct SampleStart {
  int64_t position = 0;  // index in document_index
  int64_t offset = 0;    // token within that sequence
  bool operator==(const SampleStart&) const = default;
};

struct GptIndices {
  std::vector<int32_t> document_index;
  std::vector<SampleStart> sample_index;  // one row more than there are samples
  std::vector<int64_t> shuffle_index;
  int64_t epochs = 0;
  bool separate_final_epoch = false;

  int64_t samples() const { return static_cast<int64_t>(shuffle_index.size()); }
};

// Builds the indices for at least `num_samples` samples, or one epoch when it is absent. `sequences` are the ids of the
// sequences of this split, `length_of` gives their lengths. Throws Failure if they hold fewer than seq_length + 1
// tokens.
GptIndices build_gpt_indices(std::span<const int32_t> sequences, FunctionRef<int64_t(int32_t)> length_of,
                             int64_t seq_length, std::optional<int64_t> num_samples, uint32_t seed);

}  // namespace trifold
