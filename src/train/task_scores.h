// The tasks a BERT can be tuned for: their samples, and how good its answers are.
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

// A file of a task, read and made into samples.
class TaskData {
 public:
  virtual ~TaskData() = default;
  virtual const std::vector<TaskSample>& samples() const = 0;
  // Of the model's logits of each sample (train/task_logits.h): what is measured, by name; and as JSON what
  // it answers.
  virtual Scores scores(std::span<const double> logits) const = 0;
  virtual std::string predictions(std::span<const double> logits) const = 0;
};

// The file `path` for the task of `config`. `model` is the tuned one: of a classifier it names the classes.
// BadInput for what is wrong in the file.
std::unique_ptr<TaskData> read_task(const std::string& path, const FinetuneConfig& config,
                                    const ModelConfig& model, const Tokenizer& tokenizer);

}  // namespace trifold
