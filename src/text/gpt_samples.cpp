#include "text/gpt_samples.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "core/error.h"

namespace trifold {

namespace {

GptIndices indices_of(const IndexedDataset& dataset, Interval part, Split split, int64_t seq_length,
                      std::optional<int64_t> num_samples, uint64_t seed) {
  if (seed > std::numeric_limits<uint32_t>::max())
    bad_input("--seed {}: the sample order of .bin/.idx files is made with a 32-bit seed; use at most {}",
              seed, std::numeric_limits<uint32_t>::max());
  if (dataset.sequences() > std::numeric_limits<int32_t>::max())
    bad_input("{} has {} sequences; the sample order counts them in 32 bits", dataset.prefix(),
              dataset.sequences());
  std::vector<int32_t> sequences(static_cast<size_t>(part.size()));
  std::iota(sequences.begin(), sequences.end(), static_cast<int32_t>(part.begin));
  int64_t tokens = 0;
  for (int32_t sequence : sequences) tokens += dataset.length(sequence);
  if (tokens <= seq_length)
    bad_input(
        "{}: its {} part (sequences {} to {} of {}) has {} tokens, one sample needs {} (--seq-length {} and "
        "one label); change --split or give more text",
        dataset.prefix(), part_name(split), part.begin, part.end, dataset.sequences(), tokens, seq_length + 1,
        seq_length);
  return build_gpt_indices(
      sequences, [&](int32_t sequence) { return dataset.length(sequence); }, seq_length, num_samples,
      static_cast<uint32_t>(seed));
}

}  // namespace

GptSamples::GptSamples(std::shared_ptr<const IndexedDataset> dataset, Interval part, Split split,
                       int64_t seq_length, std::optional<int64_t> num_samples, uint64_t seed,
                       int64_t vocab_size)
    : dataset_(std::move(dataset)),
      vocab_size_(vocab_size),
      indices_(indices_of(*dataset_, part, split, seq_length, num_samples, seed)) {}

void GptSamples::read(int64_t index, std::span<int32_t> out) const {
  const auto sample = static_cast<size_t>(indices_.shuffle_index[static_cast<size_t>(index)]);
  SampleStart at = indices_.sample_index[sample];
  while (!out.empty()) {
    const int32_t sequence = indices_.document_index[static_cast<size_t>(at.position)];
    const int64_t left = dataset_->length(sequence) - at.offset;
    const auto count = static_cast<size_t>(std::min(left, static_cast<int64_t>(out.size())));
    dataset_->read(sequence, at.offset, out.first(count), vocab_size_);
    out = out.subspan(count);
    ++at.position;
    at.offset = 0;
  }
}

}  // namespace trifold
