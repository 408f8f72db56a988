// TuningTask is an entry in the table of finetuning tasks: what `trifold finetune` does for --task NAME. A new task is a
// name in config/fields/choices.h, its entry in tuning_task.cpp, and a TaskData.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "config/fields/config.h"
#include "data/batch.h"
#include "pipeline/executor.h"
#include "run/metrics.h"
#include "text/training_text.h"
#include "tokenize/tokenizer.h"
#include "train/replica.h"
#include "train/start/checkpoint_model.h"

namespace trifold {

// Observes one evaluation, to compute more than its loss: one object on each rank.
class TaskMeasure {
 public:
  virtual ~TaskMeasure() = default;
  // Sees everything that is computed.
  virtual StepWatch& watch() = 0;
  // Called after the last sample. Collective.
  virtual void gather() = 0;
  // After gather(), on rank 0: the metrics by name, and the contents of the file of --predictions.
  virtual Scores scores() const = 0;
  virtual std::string predictions() const { return {}; }
};

// The samples of a task's file.
class TaskData {
 public:
  virtual ~TaskData() = default;
  // The samples of one pass.
  virtual int64_t samples() const = 0;
  // The samples of `passes` passes, in a new order each time if `shuffled`. The source may outlive this object.
  virtual std::unique_ptr<DataSource> passes(int64_t passes, bool shuffled, uint64_t seed) const = 0;
  // For an evaluation of one unshuffled pass with `replica`, which must outlive the result; null: the loss is all.
  virtual std::unique_ptr<TaskMeasure> measure(Replica& /*replica*/) const { return nullptr; }
  // Computes what the samples need besides their file, before they are trained or evaluated on as `run` says; sources
  // made earlier have it too. False if `signal` stopped it. Collective.
  virtual bool complete(Communicator& /*world*/, const PretrainConfig& /*run*/,
                        const std::atomic<int>& /*signal*/) const {
    return true;
  }
  // What became of the file's records.
  virtual DataNotes notes() const { return {}; }
};

// What reading a task's file takes; valid during the call.
struct TaskContext {
  const FinetuneConfig& config;
  const ModelConfig& model;  // as tuned_model returns it
  const Tokenizer& tokenizer;
  DType dtype;  // in which the model is trained or evaluated
};

struct TuningTask {
  FinetuneTask task;
  // The model that is trained, with the task's head if it has one. BadInput unless the model of `from`, from which
  // the run begins or which is evaluated, can be tuned for the task.
  ModelConfig (*tuned_model)(const FinetuneConfig& config, const CheckpointModel& from);
  // Completes the options once the model and the tokenizer are known, before any file is read; null: nothing to do.
  void (*complete)(FinetuneConfig& config, const Tokenizer& tokenizer);
  // Reads a file. BadInput, with file and line, for its mistakes.
  std::unique_ptr<TaskData> (*read)(const std::string& path, const TaskContext& context);
  // A run begins with the weights of --load and only --auto-resume continues one; otherwise a checkpoint of the same
  // head is continued.
  bool begins_anew;
  // Whether texts end with the tokenizer's end of a document, so that bytes need one too.
  bool ends_documents;
  // What losses are means over, in reports of evaluations; null: what the family of the model counts.
  const char* loss_unit;
};

const TuningTask& tuning_task(FinetuneTask task);

// A causal model with the sample length and the dropout of `config`. BadInput unless it can be tuned to continue texts.
ModelConfig tuned_causal_model(const FinetuneConfig& config, const CheckpointModel& from);

}  // namespace trifold
