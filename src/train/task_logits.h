// Gathers the logits of a finetuned BERT's head for samples from all ranks.
#pragma once

#include <vector>

#include "config/fields/config.h"
#include "data/batch.h"
#include "pipeline/executor.h"
#include "train/replica.h"

namespace trifold {

// The number of logits per sample: one for each class, or two for each position, all beginnings before all ends.
int64_t logits_of_sample(const ModelConfig& model);

// Collects the logits while samples are computed: one object for each rank and list of samples.
class TaskLogits final : public StepWatch {
 public:
  TaskLogits(Replica& replica, const ModelConfig& model, int64_t samples);

  // The logits [samples, logits_of_sample] of all ranks, to be called after the last sample. Collective.
  const std::vector<double>& gather();

  void begin(const Action& action, int block, const Batch& batch, const ParamSource& weights,
             Stream& stream) override;
  void end(Stream& stream) override;
  void see(std::string_view layer, std::string_view what, Tensor tensor, Stream& stream) override;
  void after(const Action& action) override;

 private:
  // Stores the rows of `tensor` as logits [at, at + columns) of samples from `first` on.
  void keep(Tensor tensor, int64_t first, int64_t at, Stream& stream);

  Replica& replica_;
  int64_t width_, seq_length_, samples_;
  const Batch* batch_ = nullptr;
  std::vector<double> logits_;
};

}  // namespace trifold
