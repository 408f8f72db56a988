// ReadAhead reads the next micro-batches on a thread while the current one is being computed.
//
// The order is known in advance: a data-parallel rank reads micro-batch i of the run at sample first_sample + i *
// stride, where stride = micro_batch_size * data-parallel size, or in the order given for plans that permute the
// micro-batches of a step. Nothing is requested, no batch is discarded, and the batches equal the results of
// DataSource::read.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

#include "core/tensor.h"
#include "data/batch.h"
#include "data/slot_reader.h"

namespace trifold {

// Owns the memory of one batch.
class BatchBuffer {
 public:
  BatchBuffer(int64_t samples, int64_t seq_length);
  // With the sequence length of `source`, and document_begin, arrays and later labels if it fills them.
  BatchBuffer(const DataSource& source, int64_t samples);
  // With the shapes of a batch without memory.
  explicit BatchBuffer(const Batch& shapes);
  Batch& batch() { return batch_; }

 private:
  Buffer memory_;
  Batch batch_;
};

struct ReadOrder {
  int64_t first_sample = 0;      // consumed samples + data-parallel rank * micro_batch_size
  int64_t stride = 0;            // samples between successive micro-batches of this rank
  int64_t micro_batch_size = 0;  // samples in each
  int64_t count = 0;             // total number of micro-batches
  // Samples from here on do not exist; micro-batches are padded instead (data/batch.h).
  int64_t end = std::numeric_limits<int64_t>::max();
  // The positions to keep of each sample (cut_rows); empty: all.
  SequenceRows rows = {};
  // The order of the micro-batches within each step, a permutation; empty: ascending.
  std::vector<int> permutation = {};
};

class ReadAhead {
 public:
  // Reads up to `ahead` batches in advance. The consumer may use `held` batches at a time: the result of `get` is valid
  // until `get` has been called `held` more times (1: until the next call). `source` must outlive this object. All
  // memory, ahead + held batches, is allocated here.
  ReadAhead(const DataSource& source, const ReadOrder& order, int held = 1, int ahead = 2);
  // The next batch. Throws an error in reading it once all earlier batches were returned, and again in every later
  // call. Throws Failure if it does not arrive within `timeout` (calling again continues the wait) or after the last
  // batch.
  const Batch& get(std::chrono::milliseconds timeout = std::chrono::minutes(10));

 private:
  int64_t first_sample(int64_t index) const;  // first sample of the index-th batch returned
  size_t slot(int64_t index) const { return static_cast<size_t>(index) % slots_.size(); }
  void read(int64_t index);

  const DataSource& source_;
  ReadOrder order_;
  std::vector<BatchBuffer> slots_;  // batch i is in slot i % size
  std::vector<Batch> cut_;          // the part of each slot's batch that is returned
  SlotReader reader_;               // last member: its thread uses the other members
};

}  // namespace trifold
