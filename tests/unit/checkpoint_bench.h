// Helpers for checkpoint tests: a folder that removes itself, ranks as threads that can only gather, and sharded
// tensors with known values.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/writer.h"
#include "files/file.h"
#include "support/ranks.h"

namespace trifold::test {

class TemporaryFolder {
 public:
  TemporaryFolder() : path_(std::filesystem::temp_directory_path() / ("trifold_test_" + random_id())) {
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// The message of the BadInput that `body` throws; any other outcome fails the test.
template <class Body>
std::string bad_input_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

inline testing::AssertionResult has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "\"" << text << "\" does not say \"" << part << "\"";
}

// Calls body(comm) on `count` ranks and returns the error messages of the ranks, empty for no error.
inline std::vector<std::string> on_ranks(int count, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> errors(static_cast<size_t>(count));
  run_ranks(count, [&](Communicator& comm) {
    try {
      body(comm);
    } catch (const std::exception& error) {
      errors[static_cast<size_t>(comm.rank())] = error.what();
    }
  });
  return errors;
}

// Boxes of tensors in their own memory. Element values depend on the name and the global index only.
class Boxes {
 public:
  NamedTensor& add(const std::string& name, DType dtype, const Shape& global, const Rect& local,
                   AxisSet replicated = {}) {
    buffers_.emplace_back(static_cast<size_t>(local.elements()) * size_of(dtype));
    tensors_.push_back(
        {{name, global, local, replicated, {}}, {buffers_.back().data(), dtype, local.extent}});
    return tensors_.back();
  }
  NamedTensor& add_filled(const std::string& name, DType dtype, const Shape& global, const Rect& local,
                          AxisSet replicated = {}) {
    NamedTensor& tensor = add(name, dtype, global, local, replicated);
    for (int64_t e = 0; e < local.elements(); ++e) set(tensor.data, e, expected(tensor.spec, e));
    return tensor;
  }
  std::span<const NamedTensor> all() const { return tensors_; }

  // The number of elements that differ from those of `add_filled`.
  int64_t wrong() const {
    int64_t count = 0;
    for (const NamedTensor& tensor : tensors_)
      for (int64_t e = 0; e < tensor.data.elements(); ++e)
        count += get(tensor.data, e) != expected(tensor.spec, e);
    return count;
  }

 private:
  // A number that f32, f64 and i64 all hold exactly.
  static double expected(const ShardSpec& spec, int64_t e) {
    int64_t index = 0;
    int64_t stride = 1;
    for (int dim = spec.global.rank() - 1; dim >= 0; --dim) {
      index += (spec.local.offset[dim] + e % spec.local.extent[dim]) * stride;
      e /= spec.local.extent[dim];
      stride *= spec.global[dim];
    }
    return static_cast<double>(philox_word(philox_key(7, spec.name), static_cast<uint64_t>(index)) >> 8) -
           1000.0;
  }
  static void set(const Tensor& data, int64_t e, double value) {
    if (data.dtype == DType::F32)
      data.as<float>()[e] = static_cast<float>(value);
    else if (data.dtype == DType::F64)
      data.as<double>()[e] = value;
    else
      data.as<int64_t>()[e] = static_cast<int64_t>(value);
  }
  static double get(const Tensor& data, int64_t e) {
    if (data.dtype == DType::F32) return data.as<float>()[e];
    if (data.dtype == DType::F64) return data.as<double>()[e];
    return static_cast<double>(data.as<int64_t>()[e]);
  }

  std::vector<Buffer> buffers_;
  std::vector<NamedTensor> tensors_;
};

inline CheckpointMeta meta_of(int64_t step) {
  return {step,
          32 * step,
          {{"hidden_size", 12}, {"num_layers", 2}},
          {{"tp", 2}, {"dp", 2}, {"pp", 1}},
          {{"lr", 0.1}},
          {{"loss_scale", 1.0}}};
}

}  // namespace trifold::test
