// AbsentValues: what arrives from ranks that do not exist, as copies on a stream, which cost about what receiving costs.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <utility>

#include "core/stream.h"
#include "core/tensor.h"
#include "ops/ops.h"

namespace trifold {

// The scale of drawn numbers.
enum class AbsentScale : uint8_t {
  Unit,   // N(0, 1)
  Small,  // N(0, 2^-24): as gradients of a mean over thousands of tokens
};

// Thread-safe, except that `ops` belongs to the streams. The numbers drawn for a dtype are made once, and repeat.
class AbsentValues {
 public:
  AbsentValues(uint64_t seed, const OpTable* device_ops) : seed_(seed), device_ops_(device_ops) {}

  // Fills `to` with `from`, as often as it takes; with drawn numbers if `from` is empty.
  void repeat(Stream& stream, const Tensor& to, const Tensor& from);
  // Fills floats with drawn numbers from position `offset` on; integers with 0.
  void draw(Stream& stream, const Tensor& to, AbsentScale scale, uint64_t offset);
  // y = factor y
  void scale(Stream& stream, const Tensor& y, double factor) const;
  static void copy(Stream& stream, void* to, const void* from, size_t bytes);

 private:
  const OpTable& ops_on(const Stream& stream) const {
    return stream.queue() != nullptr && device_ops_ != nullptr ? *device_ops_ : cpu_ops();
  }
  Tensor drawn(Stream& stream, DType dtype, AbsentScale scale);

  uint64_t seed_;
  const OpTable* device_ops_;
  std::mutex mutex_;
  std::map<std::tuple<DType, AbsentScale, bool>, Buffer> drawn_;  // by type, scale, and whether on the device
};

}  // namespace trifold
