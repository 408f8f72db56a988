// TensorsOnHost gives host access to tensors that are saved or loaded. Tensors in host memory are used directly; for
// those of a device it allocates host memory, all at once.
#pragma once

#include <vector>

#include "checkpoint/writer.h"
#include "ops/ops.h"

namespace trifold {

class TensorsOnHost {
 public:
  // `tensors` are in the memory of `ops` unless they say otherwise, and were last written by work on `stream`. All
  // must outlive this object.
  TensorsOnHost(std::vector<NamedTensor> tensors, const OpTable& ops, Stream& stream);

  // The tensors in host memory; with a device their content is unspecified before `fetch`.
  std::vector<NamedTensor>& tensors() { return here_; }
  // Copies from the device, or back to it; complete on return.
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
