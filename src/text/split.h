// Splits: the contiguous parts of a data set for training, validation and test.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "config/fields/choices.h"
#include "core/interval.h"

namespace trifold {

std::string_view part_name(Split split);  // "training", "validation", "test"

// The bounds 0, a, b, 1 of the three parts as fractions of the whole.
class SplitFractions {
 public:
  // `text` is up to three numbers in any scale, "969,30,1" or "90 10"; missing ones are 0. BadInput if it contains
  // anything else, more numbers, or only zeros.
  explicit SplitFractions(const std::string& text);

  // The shares in percent, "96.9,3,0.1": the same for all spellings of the same shares.
  std::string text() const;
  bool empty(Split split) const;
  // Whether `draw`, uniform in [0, 1), falls into the split.
  bool takes(Split split, double draw) const;
  // The part of `count` units (sequences of an indexed data set, tokens of a text file) in the split; bounds are
  // rounded half to even, as in Megatron-LM.
  Interval of(Split split, int64_t count) const;

 private:
  std::array<double, 4> bounds_{};
};

// The number of samples that a run reads from each split, by Megatron-LM's rule: an evaluation reads `eval_iters`
// global batches, and runs every `eval_interval` steps and once more at the end. An `eval_interval` of 0 means no
// evaluation while training.
int64_t samples_needed(Split split, int64_t train_iters, int64_t eval_interval, int64_t eval_iters,
                       int64_t global_batch_size);

}  // namespace trifold
