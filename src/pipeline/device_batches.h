// DeviceBatches: the batches of a rank where its device reads them.
//
// A batch is copied to memory of the host that the device reaches, and from there by a stream of its own: the
// host goes on enqueueing, and the next batch arrives while the device computes with the last. There is one
// place more than batches are in use at a time. The numbers of a batch that operations read (Batch::sample,
// Batch::loss_factors) travel with it.
#pragma once

#include <vector>

#include "data/batch.h"
#include "ops/ops.h"

namespace trifold {

class DeviceBatches {
 public:
  // For at most `in_use` batches at a time. `ops` has a device; `compute` is the stream of those who read.
  // Both must outlive this.
  DeviceBatches(const OpTable& ops, Stream& compute, int64_t in_use);

  // The same batch in the device's memory, for work that is enqueued on the compute stream from now on.
  // `number` counts the batches of a step; `loss_scale` is Run's. `batch` may be changed when this returns.
  Batch take(const Batch& batch, int64_t number, double loss_scale);
  // All work with batch `number` is enqueued.
  void release(int64_t number);

 private:
  // What stands behind the tensors of a batch.
  struct Numbers {
    int64_t first_sample;
    double loss_factors[3];
  };
  struct Place {
    Buffer host, device;
    Event copied, used;
  };
  Place& place(int64_t number) { return places_[static_cast<size_t>(number) % places_.size()]; }

  const OpTable& ops_;
  Stream& compute_;
  std::vector<Place> places_;
  Stream copies_;  // after what it copies between: it is waited for before that goes
};

}  // namespace trifold
