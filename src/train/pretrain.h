// `trifold pretrain`: from a configuration to a trained model. `prepare` runs once per process and finds every mistake
// in the user's files; `pretrain` runs on every rank.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>

#include "config/fields/config.h"
#include "data/batch.h"
#include "run/job.h"
#include "run/metrics.h"
#include "text/training_text.h"
#include "train/trainer.h"

namespace trifold {

struct PretrainJob : RunJob {
  PretrainConfig config;  // resolved, the vocabulary and the tokenizer included
  std::unique_ptr<DataSource> train;
  std::unique_ptr<DataSource> valid;        // null without evaluation
  std::shared_ptr<BadRecords> bad_records;  // records that the sources skip; null: none
  DataNotes notes;                          // notes on the data
  PlannedRuns planned;                      // empty if nothing is left to train
};

// Opens the data and checks the checkpoint to load. BadInput before anything is written.
PretrainJob prepare(PretrainConfig config, RanksHere ranks = RanksHere::All);
// Prepares a job with other data: `open_data` sets train, optionally valid, and with --train-epochs the length of
// the run. It is called once the start of the job is known. `also` stands for what the run computes besides.
PretrainJob prepare(PretrainConfig config, const std::function<void(PretrainJob&)>& open_data,
                    std::string_view also = {}, RanksHere ranks = RanksHere::All);

// Collective over `world`. `observer` receives all reports on rank 0. A non-zero `signal` on any rank ends the run
// after the current step of all ranks.
//
// `measure`, if given, is called on every rank every --eval-interval steps and after the last step. It returns the
// loss, the same on all ranks, or nullopt if `signal` stopped it.
using Measure = std::function<std::optional<double>(Trainer&)>;
RunEnd pretrain(Communicator& world, const PretrainJob& job, RunObserver& observer,
                const std::atomic<int>& signal, const Measure& measure = {});

// Fills in values that follow from the data: the tokenizer's type, and from it the vocabulary size if it is not given.
// BadInput when the vocabulary is missing or smaller than the tokenizer's.
void resolve_vocabulary(ModelConfig& model, DataConfig& data);

}  // namespace trifold
