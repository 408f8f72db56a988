// `trifold finetune`: trains a pretrained model for a task (train/tuning/tuning_task.h), or evaluates it. It runs as
// `pretrain` does (train/pretrain.h), on the trained model with the task's samples and, for a BERT, the task's head.
#pragma once

#include <memory>
#include <optional>

#include "config/fields/config.h"
#include "train/pretrain.h"
#include "train/start/checkpoint_model.h"
#include "train/tuning/tuning_task.h"

namespace trifold {

struct FinetuneJob {
  FinetuneConfig config;
  ModelConfig model;                       // as it is tuned
  std::string checkpoint;                  // the checkpoint to start from
  std::unique_ptr<TaskData> train;         // null without --train-data
  std::unique_ptr<TaskData> valid;         // null without --valid-data
  std::unique_ptr<DataSource> valid_once;  // the samples of `valid` in order
  std::optional<PretrainJob> run;          // absent without --train-data
  RunTerms terms;                          // must be equal in the jobs of all ranks
};

// Reads the files and the checkpoint's description. Throws BadInput before anything is written.
FinetuneJob prepare(FinetuneConfig config, RanksHere ranks = RanksHere::All);

// Collective over `world`: trains, if the job has training data, and evaluates on the validation data every
// --eval-interval steps and at the end. Rank 0 writes the last predictions. All references must stay valid during the
// call.
RunEnd finetune(Communicator& world, FinetuneJob& job, RunObserver& observer, const std::atomic<int>& signal);

}  // namespace trifold
