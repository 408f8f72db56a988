#include "text/gpt_indices.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "text/numpy_random.h"

namespace trifold {

namespace {

// Every sample needs one token more than its length: the label of its last token.
constexpr int64_t kExtraToken = 1;

// Appends `epochs` copies of `sequences` to `order`, shuffled together.
void append_shuffled(std::vector<int32_t>& order, std::span<const int32_t> sequences, int64_t epochs,
                     NumpyRandom& random) {
  const size_t begin = order.size();
  for (int64_t epoch = 0; epoch < epochs; ++epoch)
    order.insert(order.end(), sequences.begin(), sequences.end());
  random.shuffle(std::span(order).subspan(begin));
}

// Walks seq_length + 1 tokens from each start; the last of them, wherever it lies, is the first of the next
// sample.
std::vector<SampleStart> cut_samples(const GptIndices& indices, FunctionRef<int64_t(int32_t)> length_of,
                                     int64_t seq_length, int64_t samples) {
  std::vector<SampleStart> starts;
  starts.reserve(static_cast<size_t>(samples) + 1);
  SampleStart at;
  starts.push_back(at);
  for (int64_t i = 0; i < samples; ++i) {
    int64_t needed = seq_length + kExtraToken;
    while (needed > 0) {
      const int64_t left = length_of(indices.document_index[static_cast<size_t>(at.position)]) - at.offset;
      if (left >= needed) {
        at.offset += needed - kExtraToken;
        needed = 0;
      } else {
        needed -= left;
        ++at.position;
        at.offset = 0;
      }
    }
    starts.push_back(at);
  }
  return starts;
}

}  // namespace

GptIndices build_gpt_indices(std::span<const int32_t> sequences, FunctionRef<int64_t(int32_t)> length_of,
                             int64_t seq_length, std::optional<int64_t> num_samples, uint32_t seed) {
  int64_t tokens = 0;  // per epoch
  for (int32_t sequence : sequences) tokens += length_of(sequence);
  check(seq_length > 0 && tokens > seq_length, "{} tokens are too few for a sample of {} tokens and a label",
        tokens, seq_length);

  GptIndices indices;
  const int64_t wanted_tokens = num_samples ? *num_samples * seq_length + kExtraToken : tokens;
  indices.epochs = std::max<int64_t>(1, (wanted_tokens + tokens - 1) / tokens);

  // The samples of all epochs but the last; they decide how much of the last is needed.
  const int64_t before_final = ((indices.epochs - 1) * tokens - kExtraToken) / seq_length;
  if (indices.epochs > 1) {
    const int64_t from_final = *num_samples - before_final;
    const int64_t per_epoch = (tokens - kExtraToken) / seq_length;
    check(0 <= from_final && from_final <= per_epoch + 1,
          "the last of {} epochs has {} samples instead of {}", indices.epochs, per_epoch, from_final);
    indices.separate_final_epoch = from_final < static_cast<int64_t>(0.80 * static_cast<double>(per_epoch));
  }

  NumpyRandom random(seed);
  indices.document_index.reserve(sequences.size() * static_cast<size_t>(indices.epochs));
  if (indices.separate_final_epoch) {
    append_shuffled(indices.document_index, sequences, indices.epochs - 1, random);
    append_shuffled(indices.document_index, sequences, 1, random);
  } else {
    append_shuffled(indices.document_index, sequences, indices.epochs, random);
  }

  const int64_t samples = (indices.epochs * tokens - kExtraToken) / seq_length;
  indices.sample_index = cut_samples(indices, length_of, seq_length, samples);
  indices.shuffle_index.resize(static_cast<size_t>(samples));
  std::iota(indices.shuffle_index.begin(), indices.shuffle_index.end(), int64_t{0});
  const auto first_part = static_cast<size_t>(indices.separate_final_epoch ? before_final : samples);
  random.shuffle(std::span(indices.shuffle_index).first(first_part));
  random.shuffle(std::span(indices.shuffle_index).subspan(first_part));
  return indices;
}

}  // namespace trifold
