// DeviceBatches: copies of a rank's batches in device memory.
//
// A batch is copied to pinned host memory, and from there to the device by a separate stream, so the host
// continues to enqueue, and the next batch arrives while the device computes with the last. There is one
// buffer more than batches in use at a time. The per-step numbers of a batch that operations read
// (Batch::sample, Batch::loss_factors) are copied with it.
#pragma once

#include <vector>

#include "data/batch.h"
#include "ops/ops.h"

namespace trifold {

class DeviceBatches {
 public:
  // For at most `in_use` batches at a time. `ops` must have a device; `compute` is the stream of the readers.
  // Both must outlive this object.
  DeviceBatches(const OpTable& ops, Stream& compute, int64_t in_use);

  // The same batch in device memory, for work enqueued on the compute stream from now on. `number` counts the
  // batches of a step; `loss_scale` is that of Run. `batch` may be changed when this returns.
  Batch take(const Batch& batch, int64_t number, double loss_scale);
  // To be called when all work with batch `number` has been enqueued.
  void release(int64_t number);

 private:
  static constexpr int64_t kLossFactors = 1 + 2 * kMostBatchValues;
  // Stored after the tensors of a batch.
  struct Numbers {
    int64_t first_sample;
    double loss_factors[kLossFactors];
  };
  struct Place {
    Buffer host, device;
    Event copied, used;
  };
  Place& place(int64_t number) { return places_[static_cast<size_t>(number) % places_.size()]; }

  const OpTable& ops_;
  Stream& compute_;
  std::vector<Place> places_;
  Stream copies_;  // after the buffers it copies between: destroyed, and so drained, first
};

}  // namespace trifold
