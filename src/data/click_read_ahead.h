// ClickReadAhead: a thread that reads the next batches of clicks while the current one is being computed.
//
// The order is known beforehand: step s of the run is batch s mod steps of epoch s / steps, where an epoch
// has steps = ceil(samples / global_batch) batches, the last of which may be partial.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "data/click_source.h"
#include "data/slot_reader.h"

namespace trifold {

struct ClickReadOrder {
  int64_t global_batch = 0;  // samples of all ranks in a step
  int64_t rank_first = 0;    // this rank's place in it,
  int64_t rank_samples = 0;  //   and how many of its samples it reads
  int64_t first_step = 0;    // steps done before
  int64_t steps = 0;         // to read
};

// Steps of an epoch.
inline int64_t steps_per_epoch(int64_t samples, int64_t global_batch) {
  return (samples + global_batch - 1) / global_batch;
}

class ClickReadAhead {
 public:
  // Up to `ahead` batches are read in advance; what `get` returns stays valid until `get` has been called
  // `held` more times. `reader` must outlive this object. All memory is allocated here.
  ClickReadAhead(const ClickReader& reader, const ClickReadOrder& order, int held = 1, int ahead = 2);

  // The next step's batch. Errors as in SlotReader::get.
  const ClickBatch& get(std::chrono::milliseconds timeout = std::chrono::minutes(10));

 private:
  void fill(int64_t index);
  ClickBatchBuffer& slot(int64_t index) { return buffers_[static_cast<size_t>(index) % buffers_.size()]; }

  const ClickReader& reader_;
  ClickReadOrder order_;
  std::vector<ClickBatchBuffer> buffers_;
  SlotReader slots_;  // last: its thread uses the others
};

}  // namespace trifold
