// Helpers for the tests of a device's products and attention: the same numbers there and on the processor. Without a
// device the tests skip with the reason.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <optional>
#include <vector>

#include "core/random.h"
#include "ops/host_copy.h"
#include "support/device_ops.h"

namespace trifold::test {

using Values = std::vector<double>;

class CudaProducts : public ::testing::Test {
 protected:
  void SetUp() override { use_table({}); }
  void use_table(const CudaTable& which) {
    std::string why;
    ops_ = device_ops(why, which);
    if (ops_ == nullptr) GTEST_SKIP() << why;
    stream_.emplace(Stream::Mode::Inline, pool_, ops_->device);
    host_.emplace(Stream::Mode::Inline, pool_);
  }

  // Numbers that every type holds exactly, so that all see the same input.
  static Values numbers(int64_t count, const char* name) {
    const PhiloxKey key = philox_key(5, name);
    Values values(static_cast<size_t>(count));
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<double>(static_cast<int>(philox_word(key, i) % 129) - 64) / 64;
    return values;
  }

  Tensor on_host(DType dtype, const Shape& shape, const Values& values) {
    buffers_.emplace_back(static_cast<size_t>(shape.elements()) * size_of(dtype));
    const Tensor tensor = buffers_.back().tensor(dtype, shape);
    dispatch_float(dtype, [&](auto zero) {
      using T = decltype(zero);
      for (size_t i = 0; i < values.size(); ++i) tensor.as<T>()[i] = static_cast<T>(values[i]);
    });
    return tensor;
  }
  Tensor on_device(DType dtype, const Shape& shape, const Values& values = {}) {
    buffers_.emplace_back(static_cast<size_t>(shape.elements()) * size_of(dtype), ops_->device);
    const Tensor tensor = buffers_.back().tensor(dtype, shape);
    if (!values.empty()) ops_->copy(*stream_, tensor, on_host(dtype, shape, values));
    return tensor;
  }
  Tensor on_host(const std::vector<int32_t>& values) {
    buffers_.emplace_back(values.size() * sizeof(int32_t));
    const Tensor tensor = buffers_.back().tensor(DType::I32, {static_cast<int64_t>(values.size())});
    std::copy(values.begin(), values.end(), tensor.as<int32_t>());
    return tensor;
  }
  Tensor on_device(const std::vector<int32_t>& values) {
    const Tensor from = on_host(values);
    buffers_.emplace_back(from.bytes(), ops_->device);
    const Tensor tensor = buffers_.back().tensor(DType::I32, from.shape);
    ops_->copy(*stream_, tensor, from);
    return tensor;
  }
  Values read(const Tensor& tensor, const OpTable& ops, Stream& stream) {
    const HostCopy copy(ops, stream, tensor);
    Values values(static_cast<size_t>(tensor.elements()));
    dispatch_float(tensor.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(copy.tensor().as<T>()[i]);
    });
    return values;
  }
  // The largest difference, in units of the reference's largest number.
  double error(const Tensor& device, const Tensor& reference) {
    const Values a = read(device, *ops_, *stream_);
    const Values b = read(reference, cpu_ops(), *host_);
    double most = 0;
    double size = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      most = std::max(most, std::isfinite(a[i]) ? std::abs(a[i] - b[i]) : HUGE_VAL);
      size = std::max(size, std::abs(b[i]));
    }
    return most / size;
  }

  const OpTable* ops_ = nullptr;
  ThreadPool pool_{1};
  std::optional<Stream> stream_, host_;
  std::deque<Buffer> buffers_;
};

}  // namespace trifold::test
