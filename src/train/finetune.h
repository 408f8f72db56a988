// `trifold finetune`: finetunes a pretrained BERT for a task, or evaluates a finetuned one. It runs as `pretrain` does
// (train/pretrain.h), on the trained model with its head replaced by the task's.
#pragma once

#include <memory>
#include <optional>

#include "config/fields/config.h"
#include "train/checkpoint_model.h"
#include "train/pretrain.h"
#include "train/task_scores.h"

namespace trifold {

struct FinetuneJob {
  FinetuneConfig config;
  ModelConfig model;                       // with the task's head
  std::string checkpoint;                  // the checkpoint to start from
  std::unique_ptr<TaskData> valid;         // null without --valid-data
  std::unique_ptr<DataSource> valid_once;  // the samples of `valid` in order
  std::optional<PretrainJob> run;          // absent without --train-data
  RunTerms terms;                          // must be equal in the jobs of all ranks
};

// Reads the files and the checkpoint's description. Throws BadInput before anything is written.
FinetuneJob prepare(FinetuneConfig config);

// Collective over `world`: trains, if the job has training data, and evaluates on the validation data every
// --eval-interval steps and at the end. Rank 0 writes the last predictions. All references must stay valid during the
// call.
RunEnd finetune(Communicator& world, FinetuneJob& job, RunObserver& observer, const std::atomic<int>& signal);

}  // namespace trifold
