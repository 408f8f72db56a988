// `trifold finetune`: a BERT that was trained before, tuned for a task, or asked about it. A run like that of
// `pretrain` (train/pretrain.h), of another model: the trained one with the task's head in place of its own.
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
  ModelConfig model;                       // the tuned one
  std::string checkpoint;                  // what it starts from
  std::unique_ptr<TaskData> valid;         // null without --valid-data
  std::unique_ptr<DataSource> valid_once;  // its samples in order
  std::optional<PretrainJob> run;          // absent without --train-data
  RunTerms terms;                          // what it must have in common with the jobs of other ranks
};

// Reads the files and looks into the checkpoint. BadInput before anything is written.
FinetuneJob prepare(FinetuneConfig config);

// Collective over `world`: trains, where the job does, and measures with the validation data: every
// --eval-interval steps and at the end. Predictions of the last are written by rank 0. References are kept
// while it runs.
RunEnd finetune(Communicator& world, FinetuneJob& job, RunObserver& observer, const std::atomic<int>& signal);

}  // namespace trifold
