// StepTrace keeps everything that the ranks do in a few steps (--trace), and gives it to rank 0 when these are over.
//
// It costs nothing outside these steps. In them an event takes a lock and about 150 bytes; afterwards the ranks send
// their events to rank 0 one after the other, and wait until it has written the file.
#pragma once

#include <cstdint>

#include "comm/communicator.h"
#include "config/fields/config.h"
#include "run/metrics.h"

namespace trifold {

class StepTrace {
 public:
  // The run has done `steps_done` steps, and its last one is `last_step`; `observer` is null on all ranks but 0. Without
  // --trace the other functions do nothing. `world` must outlive this object.
  StepTrace(Communicator& world, const WatchConfig& watch, int64_t steps_done, int64_t last_step,
            SaveObserver* observer);

  // Call it before every step, or before `next` steps that are trained together. Collective when the last step of the
  // trace is done: SaveObserver::on_trace gets the logs of all ranks. An Error of on_trace becomes a warning.
  void before_step(int64_t steps_done, int64_t next);
  // Call it once no step follows. Collective if a trace is being kept, which then ends. Warns if none was begun.
  void finish();

 private:
  enum class State { Waiting, Tracing, Over };

  void end();

  Communicator& world_;
  SaveObserver* observer_;
  State state_ = State::Over;
  int64_t first_ = 0, last_ = 0;
};

}  // namespace trifold
