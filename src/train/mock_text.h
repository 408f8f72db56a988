// MockText stands in for training text: every sample is random tokens, a function of seed, part and position
// (--mock-data).
#pragma once

#include <memory>

#include "config/fields/config.h"
#include "text/training_text.h"

namespace trifold {

class MockText final : public TrainingText {
 public:
  // The vocabulary of `model` must be known.
  explicit MockText(ModelConfig model) : model_(std::move(model)) {}

  bool has(Split) const override { return true; }
  // There are no passes over random tokens.
  bool weighted() const override { return true; }
  std::unique_ptr<DataSource> source(Split split, int64_t seq_length, int64_t samples_needed,
                                     uint64_t seed) const override;
  std::unique_ptr<DataSource> passes(Split split, int64_t seq_length, int64_t passes, uint64_t seed,
                                     int64_t most) const override;

 private:
  ModelConfig model_;
};

}  // namespace trifold
