// TensorsOnHost: what is saved or loaded, where files are written from and read to. On the processor these
// are the tensors themselves; those of a device get memory of the host beside them, all at once.
#pragma once

#include <vector>

#include "checkpoint/writer.h"
#include "ops/ops.h"

namespace trifold {

class TensorsOnHost {
 public:
  // `tensors` live where those of `ops` do, and are last written by work on `stream`. All must outlive this.
  TensorsOnHost(std::vector<NamedTensor> tensors, const OpTable& ops, Stream& stream);

  // The same boxes on the host; of a device, of unspecified content before `fetch`.
  std::vector<NamedTensor>& tensors() { return here_; }
  // Brings what the device has, or gives it what was read; complete when they return.
  void fetch() { copy(here_, there_); }
  void put_back() { copy(there_, here_); }

 private:
  void copy(const std::vector<NamedTensor>& to, const std::vector<NamedTensor>& from);

  const OpTable& ops_;
  Stream& stream_;
  std::vector<NamedTensor> there_, here_;
  Buffer memory_;
};

}  // namespace trifold
