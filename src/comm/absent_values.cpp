#include "comm/absent_values.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "core/random.h"

namespace trifold {

namespace {

constexpr int64_t kDrawnElements = int64_t{1} << 18;
constexpr int64_t kCopyBytes = 256 << 10;  // worth waking another core for

bool is_float(DType dtype) {
  return dtype == DType::F64 || dtype == DType::F32 || dtype == DType::BF16 || dtype == DType::F16;
}

}  // namespace

void AbsentValues::copy(Stream& stream, void* to, const void* from, size_t bytes) {
  if (bytes == 0 || to == from) return;
  if (stream.queue() != nullptr) return stream.queue()->copy(to, from, bytes);
  stream.pool().parallel_for(static_cast<int64_t>(bytes), kCopyBytes, [&](int64_t begin, int64_t end) {
    std::memcpy(static_cast<std::byte*>(to) + begin, static_cast<const std::byte*>(from) + begin,
                static_cast<size_t>(end - begin));
  });
}

Tensor AbsentValues::drawn(Stream& stream, DType dtype, AbsentScale scale) {
  const std::lock_guard lock(mutex_);
  const bool on_device = stream.queue() != nullptr;
  Buffer& known = drawn_[{dtype, scale, on_device}];
  const auto bytes = static_cast<size_t>(kDrawnElements) * size_of(dtype);
  if (known.bytes() == 0) {
    Buffer host(bytes);
    const double factor = scale == AbsentScale::Unit ? 1 : 1.0 / 4096;
    const PhiloxKey key = philox_key(seed_, "what absent ranks send");
    if (is_float(dtype))
      dispatch_float(dtype, [&](auto zero) {
        using T = decltype(zero);
        T* values = host.tensor(dtype, {kDrawnElements}).template as<T>();
        for (int64_t i = 0; i < kDrawnElements; ++i)
          values[i] = static_cast<T>(factor * philox_normal(key, static_cast<uint64_t>(i)));
      });
    if (on_device) {
      Buffer there(bytes, ops_on(stream).device);
      stream.queue()->copy(there.data(), host.data(), bytes);
      stream.queue()->synchronize();
      known = std::move(there);
    } else {
      known = std::move(host);
    }
  }
  return known.tensor(dtype, {kDrawnElements});
}

namespace {

// Copies `from` into `to` from byte `offset` on, and from the beginning again when it ends.
void copy_around(Stream& stream, const Tensor& to, const Tensor& from, size_t offset) {
  const size_t length = from.bytes();
  auto* at = static_cast<std::byte*>(to.data);
  for (size_t left = to.bytes(); left > 0;) {
    const size_t some = std::min(left, length - offset);
    AbsentValues::copy(stream, at, static_cast<const std::byte*>(from.data) + offset, some);
    at += some;
    left -= some;
    offset = 0;
  }
}

}  // namespace

void AbsentValues::repeat(Stream& stream, const Tensor& to, const Tensor& from) {
  if (to.elements() == 0) return;
  if (from.elements() == 0) return draw(stream, to, AbsentScale::Unit, 0);
  copy_around(stream, to, from, 0);
}

void AbsentValues::draw(Stream& stream, const Tensor& to, AbsentScale scale, uint64_t offset) {
  if (to.elements() == 0) return;
  const Tensor from = drawn(stream, to.dtype, scale);
  copy_around(stream, to, from,
              static_cast<size_t>(offset % static_cast<uint64_t>(kDrawnElements)) * size_of(from.dtype));
}

void AbsentValues::scale(Stream& stream, const Tensor& y, double factor) const {
  if (y.elements() > 0) ops_on(stream).scale(stream, y, factor);
}

}  // namespace trifold
