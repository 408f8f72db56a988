// The finetuning tasks for BERT: their samples and metrics.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "run/metrics.h"
#include "tasks/task_samples.h"
#include "tokenize/tokenizer.h"

namespace trifold {

// The samples of a task's file.
class TaskData {
 public:
  virtual ~TaskData() = default;
  virtual const std::vector<TaskSample>& samples() const = 0;
  // The metrics by name, and the predictions as JSON, for the model's logits of each sample (train/task_logits.h).
  virtual Scores scores(std::span<const double> logits) const = 0;
  virtual std::string predictions(std::span<const double> logits) const = 0;
};

// Reads the file `path` for the task of `config`. `model` is the finetuned one; for a classifier it names the classes.
// BadInput for mistakes in the file.
std::unique_ptr<TaskData> read_task(const std::string& path, const FinetuneConfig& config,
                                    const ModelConfig& model, const Tokenizer& tokenizer);

}  // namespace trifold
