#include "run/tensors_on_host.h"

#include "core/flight/recorded_copy.h"

namespace trifold {

TensorsOnHost::TensorsOnHost(std::vector<NamedTensor> tensors, const OpTable& ops, Stream& stream)
    : ops_(ops), stream_(stream), originals_(std::move(tensors)), on_host_(originals_) {
  if (ops.device == nullptr) return;
  size_t bytes = 0;
  for (const NamedTensor& tensor : originals_) bytes += tensor.on_host ? 0 : tensor.data.bytes();
  memory_ = Buffer(bytes);
  std::byte* at = memory_.data();
  for (NamedTensor& tensor : on_host_) {
    if (tensor.on_host) continue;
    tensor.data.data = at;
    at += tensor.data.bytes();
  }
}

void TensorsOnHost::copy(const std::vector<NamedTensor>& to, const std::vector<NamedTensor>& from) {
  if (memory_.bytes() > 0) {
    const RecordedCopy recorded("checkpoint", memory_.bytes(), stream_);
    for (size_t i = 0; i < to.size(); ++i)
      if (!to[i].on_host) ops_.copy(stream_, to[i].data, from[i].data);
    return stream_.synchronize();
  }
  stream_.synchronize();
}

}  // namespace trifold
