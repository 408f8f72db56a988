// GptSamples: part of an indexed data set as samples in Megatron-LM's order (text/gpt_indices.h).
#pragma once

#include <memory>
#include <optional>

#include "text/gpt_indices.h"
#include "text/indexed_dataset.h"
#include "text/samples.h"
#include "text/split.h"

namespace trifold {

class GptSamples : public Samples {
 public:
  // Sequences [part.begin, part.end) of `dataset`, for at least `num_samples` samples (absent: one epoch).
  // BadInput if the part has too few tokens for one sample, or if `seed` needs more than 32 bits.
  GptSamples(std::shared_ptr<const IndexedDataset> dataset, Interval part, Split split, int64_t seq_length,
             std::optional<int64_t> num_samples, uint64_t seed, int64_t vocab_size);

  int64_t count() const override { return indices_.samples(); }
  void read(int64_t index, std::span<int32_t> out) const override;
  const GptIndices& indices() const { return indices_; }

 private:
  std::shared_ptr<const IndexedDataset> dataset_;
  int64_t vocab_size_;
  GptIndices indices_;
};

}  // namespace trifold
