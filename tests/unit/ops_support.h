// Helpers for tests of ops: tensors made from f64 values, every combination of table, dtype and pool size, and
// comparison with a reference and by finite differences.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/random.h"
#include "core/stream.h"
#include "core/tensor.h"
#include "ops/ops.h"

namespace trifold::ops_test {

using Values = std::vector<double>;
using Outputs = std::vector<Values>;

// Standard normal numbers that f32 holds exactly, so that f32 and f64 runs see the same input.
inline Values random_values(int64_t count, uint64_t seed) {
  const PhiloxKey key = philox_key(seed, "ops test");
  Values values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(philox_normal(key, i));
  return values;
}

// A tensor that owns its memory, made from values and read back as values.
class Host {
 public:
  Host(DType dtype, const Shape& shape, const Values& values = {})
      : buffer_(static_cast<size_t>(std::max<int64_t>(1, shape.elements())) * size_of(dtype)),
        tensor_(buffer_.tensor(dtype, shape)) {
    for (size_t i = 0; i < values.size(); ++i) set(i, values[i]);
  }

  operator Tensor() const { return tensor_; }  // NOLINT(google-explicit-constructor): meant as an argument
  operator Forms() const { return tensor_; }   // NOLINT(google-explicit-constructor): likewise
  Values values() const {
    Values result(static_cast<size_t>(tensor_.elements()));
    for (size_t i = 0; i < result.size(); ++i) result[i] = get(i);
    return result;
  }

 private:
  void set(size_t i, double value) {
    switch (tensor_.dtype) {
      case DType::F64:
        tensor_.as<double>()[i] = value;
        break;
      case DType::F32:
        tensor_.as<float>()[i] = static_cast<float>(value);
        break;
      case DType::I64:
        tensor_.as<int64_t>()[i] = static_cast<int64_t>(value);
        break;
      case DType::I32:
        tensor_.as<int32_t>()[i] = static_cast<int32_t>(value);
        break;
      case DType::BF16:
        tensor_.as<Bfloat16>()[i] = Bfloat16(value);
        break;
      case DType::F16:
        tensor_.as<Float16>()[i] = Float16(value);
        break;
      default:
        FAIL() << "no such test tensor";
    }
  }
  double get(size_t i) const {
    switch (tensor_.dtype) {
      case DType::F64:
        return tensor_.as<double>()[i];
      case DType::F32:
        return static_cast<double>(tensor_.as<float>()[i]);
      case DType::I64:
        return static_cast<double>(tensor_.as<int64_t>()[i]);
      case DType::BF16:
        return static_cast<double>(tensor_.as<Bfloat16>()[i]);
      case DType::F16:
        return static_cast<double>(tensor_.as<Float16>()[i]);
      default:
        return static_cast<double>(tensor_.as<int32_t>()[i]);
    }
  }

  Buffer buffer_;
  Tensor tensor_;
};

// A stream with its own pool.
struct Machine {
  explicit Machine(int workers) : pool(workers), stream(Stream::Mode::Inline, pool) {}
  ThreadPool pool;
  Stream stream;
};

// The largest distance between two lists, relative to the largest expected magnitude (at least 1).
inline double distance(const Values& got, const Values& expected) {
  EXPECT_EQ(got.size(), expected.size());
  if (got.size() != expected.size()) return INFINITY;
  double scale = 1;
  double worst = 0;
  for (double value : expected) scale = std::max(scale, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) {
    const double gap = std::abs(got[i] - expected[i]);
    if (!(gap <= worst)) worst = gap;  // a NaN stays
  }
  return worst / scale;
}

using Operation = std::function<Outputs(const OpTable& ops, Stream& stream, DType dtype)>;

// Runs `operation` with every table, in f32 and f64, on pools of 1, 2 and 3 workers: each output must be close to the
// reference and have the same bits for every pool.
inline void check_everywhere(const Outputs& reference, const Operation& operation,
                             double f32_tolerance = 2e-6, double f64_tolerance = 1e-13) {
  for (const OpTable* ops : all_cpu_ops()) {
    for (DType dtype : {DType::F32, DType::F64}) {
      SCOPED_TRACE(fmt::format("table {}, {}", ops->name, name_of(dtype)));
      Outputs first;
      for (int workers : {1, 2, 3}) {
        Machine machine(workers);
        const Outputs outputs = operation(*ops, machine.stream, dtype);
        ASSERT_EQ(outputs.size(), reference.size());
        if (workers == 1) first = outputs;
        EXPECT_EQ(outputs, first) << workers << " workers changed the result";
        for (size_t i = 0; i < outputs.size(); ++i)
          EXPECT_LE(distance(outputs[i], reference[i]), dtype == DType::F32 ? f32_tolerance : f64_tolerance)
              << "output " << i << " with " << workers << " workers";
      }
    }
  }
}

inline double dot(const Values& a, const Values& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Compares `gradient` with central differences of `loss` at `x`.
inline void check_gradient(const std::function<double(const Values&)>& loss, const Values& x,
                           const Values& gradient, double tolerance = 1e-6) {
  constexpr double kStep = 1e-4;
  ASSERT_EQ(x.size(), gradient.size());
  Values numeric(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    // Four points: the error falls with the fourth power of the step.
    const auto at = [&](double steps) {
      Values moved = x;
      moved[i] += steps * kStep;
      return loss(moved);
    };
    numeric[i] = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * kStep);
  }
  EXPECT_LE(distance(gradient, numeric), tolerance);
}

// The text of the Error that `body` throws; empty if it throws none.
inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// Calls body(ops, stream) with every table on two workers, for checks in f64.
inline void with_every_table(const std::function<void(const OpTable& ops, Stream& stream)>& body) {
  Machine machine(2);
  for (const OpTable* ops : all_cpu_ops()) {
    SCOPED_TRACE(ops->name);
    body(*ops, machine.stream);
  }
}

}  // namespace trifold::ops_test
