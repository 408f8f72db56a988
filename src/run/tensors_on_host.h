// TensorsOnHost gives host access to tensors that are saved or loaded. Tensors in host memory are used directly; for
// tensors on a device it allocates host memory, for all of them in one piece.
#pragma once

#include <vector>

#include "checkpoint/writer.h"
#include "ops/ops.h"

namespace trifold {

class TensorsOnHost {
 public:
  // `tensors` are in the memory of `ops` unless they say otherwise (NamedTensor::on_host), and were last written by
  // work on `stream`. All must outlive this object.
  TensorsOnHost(std::vector<NamedTensor> tensors, const OpTable& ops, Stream& stream);

  // The tensors in host memory; with a device their content is unspecified before `fetch`.
  std::vector<NamedTensor>& tensors() { return on_host_; }
  // Copy from the device to the host, and from the host to the device; complete on return.
  void fetch() { copy(on_host_, originals_); }
  void put_back() { copy(originals_, on_host_); }

 private:
  void copy(const std::vector<NamedTensor>& to, const std::vector<NamedTensor>& from);

  const OpTable& ops_;
  Stream& stream_;
  std::vector<NamedTensor> originals_, on_host_;
  Buffer memory_;
};

}  // namespace trifold
