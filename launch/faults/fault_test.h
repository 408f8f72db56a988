// For tests of faults: makes one rank fail in a chosen way at a chosen point of a run.
#pragma once

#include <memory>
#include <optional>

#include "recommend/recommend.h"
#include "train/pretrain.h"

namespace trifold::launch {

// One fault, described by the environment variable TRIFOLD_TEST_FAULT:
//
//   RANK:KIND:PHASE[:STEP[:TENSOR]]        for example 3:hang:forward:2
//
//   KIND    kill       as kill -9 does, the process of the rank
//           stop       SIGSTOP to the process of the rank
//           hang       the thread that reaches the phase waits for ever
//           error      throws an Error
//           flip       flips a bit of a weight on the rank; here and below the rank continues
//           nan-weight, nan-moment    replaces a value by NaN
//           slow       from step STEP on, every block takes twice as long
//           slow-fsync     in a save: the thread's next fsync takes TENSOR seconds longer
//   PHASE   start      before the ranks connect
//           data       while it reads a batch: every rank at the same position of the data axis fails
//           load       before it loads a checkpoint
//           begin      before it computes a step
//           forward, tensor, backward    before a block; `tensor`: inside one, while other tensor ranks wait
//           pipeline, reduce             after it has enqueued a message, or a reduction
//           update     after the update
//           evaluate, save
//           or a phase of a save (name_of(SavePhase)); STEP then counts how often the rank reaches it
//   STEP    counts from 1 and is 1 unless given
//   TENSOR  for flips and NaNs: the first weight whose name contains this; for slow-fsync: seconds
class Fault : public RunProbe {
 public:
  // Null if the variable is not set. BadInput for an impossible fault.
  static std::unique_ptr<Fault> from_environment();

  // Called before the ranks connect; `rank` is unset if the rank's number is not known yet.
  virtual void at_start(std::optional<int> rank) = 0;
  // Called before the run: attaches to its data and steps.
  virtual void attach(PretrainJob& job) = 0;
  virtual void attach(RecommendJob& job) = 0;
};

}  // namespace trifold::launch
