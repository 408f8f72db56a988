// For tests of faults: makes one rank fail in a chosen way, at a chosen place of a run.
#pragma once

#include <memory>
#include <optional>

#include "recommend/recommend.h"
#include "train/pretrain.h"

namespace trifold::launch {

// One fault, as the environment variable TRIFOLD_TEST_FAULT asks for it:
//
//   RANK:KIND:PHASE[:STEP[:TENSOR]]        for example 3:hang:forward:2
//
//   KIND    kill       as kill -9 does, the process of the rank
//           stop       SIGSTOP to the process of the rank
//           hang       the thread that comes there waits for ever
//           error      throws an Error
//           flip       flips a bit of a weight that the rank holds; from here on it goes on
//           nan-weight, nan-moment    the same with a NaN
//           slow-fsync     in a save: the thread's next fsync takes so many seconds longer as TENSOR says
//   PHASE   start      before the ranks meet
//           data       while it reads a batch: every rank at the same place of the data axis fails
//           load       before it loads a checkpoint
//           forward, tensor, backward    before a block; `tensor` inside one, where its ranks wait for it
//           pipeline, reduce             after it has put a message, or a reduction, on its stream
//           update     after the update
//           evaluate, save
//           or one of a save (name_of(SavePhase)); then STEP counts how often the rank comes there
//   STEP    counts from 1 and is 1 unless given
//   TENSOR  for flips and NaNs: the first weight whose name contains this; for slow-fsync: seconds
class Fault : public RunProbe {
 public:
  // Null where nothing is asked for: then nothing of this runs. BadInput for what cannot be.
  static std::unique_ptr<Fault> from_environment();

  // Before the ranks meet, on the one that does this; nothing where its number is not known yet.
  virtual void at_start(std::optional<int> rank) = 0;
  // Before the run: watches its data and everything else.
  virtual void attach(PretrainJob& job) = 0;
  virtual void attach(RecommendJob& job) = 0;
};

}  // namespace trifold::launch
