// DeviceBatches: copies of a rank's batches in device memory.
//
// A batch is copied to pinned host memory, and from there to the device on a separate stream, so the host continues to
// enqueue, and the next batch arrives while the device computes. There is one buffer more than batches in use at the
// same time. The scalars that operations read and that change every step (Batch::sample, Batch::loss_factors) are
// copied with the batch.
#pragma once

#include <vector>

#include "data/batch.h"
#include "ops/ops.h"

namespace trifold {

class DeviceBatches {
 public:
  // For at most `in_use` batches at the same time. `ops` must have a device; `compute` is the stream of the readers.
  // Both must outlive this object.
  DeviceBatches(const OpTable& ops, Stream& compute, int64_t in_use);

  // Copies a batch to device memory; the copy is valid for later work on the compute stream. `number` counts the
  // batches of a step; `loss_scale` is Run::loss_scale. `batch` may be changed on return.
  Batch take(const Batch& batch, int64_t number, double loss_scale);
  // Called when all work with batch `number` has been enqueued.
  void release(int64_t number);

 private:
  static constexpr int64_t kLossFactors = 1 + 2 * kMostBatchValues;
  // Stored in a buffer after the tensors of a batch.
  struct Scalars {
    int64_t first_sample;
    double loss_factors[kLossFactors];
  };
  struct BatchBuffer {
    Buffer host, device;
    Event copied, used;  // complete with the last copy and with the last reader
  };
  BatchBuffer& buffer_of(int64_t number) { return buffers_[static_cast<size_t>(number) % buffers_.size()]; }

  const OpTable& ops_;
  Stream& compute_;
  std::vector<BatchBuffer> buffers_;
  Stream copies_;  // after the buffers it copies between: destroyed, and so drained, first
};

}  // namespace trifold
