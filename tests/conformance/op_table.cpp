#include "conformance/op_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <set>

namespace trifold::conformance {

namespace {

double rounded_to(DType dtype, double x) {
  switch (dtype) {
    case DType::F32:
      return static_cast<float>(x);
    case DType::BF16:
      return static_cast<double>(Bfloat16(x));
    case DType::F16:
      return static_cast<double>(Float16(x));
    default:
      return x;
  }
}

// Calls body with a zero of the tensor's C++ type.
template <class Body>
void with_type(DType dtype, Body body) {
  if (dtype == DType::I32) return body(int32_t{});
  if (dtype == DType::I64) return body(int64_t{});
  if (dtype == DType::U8) return body(uint8_t{});
  dispatch_float(dtype, body);
}

bool is_float(DType dtype) { return dtype != DType::I32 && dtype != DType::I64 && dtype != DType::U8; }

double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return 1e-12;
    case DType::F32:
      return 4e-6;
    case DType::BF16:
      return 0x1p-7;
    case DType::F16:
      return 0x1p-10;
    default:
      return 0;
  }
}

// The largest distance, relative to the largest expected number (at least 1).
double distance(const Values& got, const Values& expected) {
  double scale = 1;
  double worst = 0;
  for (double value : expected)
    if (std::isfinite(value)) scale = std::max(scale, std::abs(value));
  for (size_t i = 0; i < got.size(); ++i) {
    const double gap = got[i] == expected[i] ? 0 : std::abs(got[i] - expected[i]);
    if (!(gap <= worst)) worst = gap;  // a NaN stays
  }
  return worst / scale;
}

std::vector<OpRun::Result> run(const OpCase& test, const OpTable& ops, Stream& stream, DType dtype,
                               DType rounded) {
  OpRun one(ops, stream, dtype, rounded);
  test.body(one);
  return one.results();
}

}  // namespace

OpRun::OpRun(const OpTable& ops, Stream& stream, DType dtype, DType rounded)
    : ops_(ops), stream_(stream), dtype_(dtype), rounded_(rounded) {}

Tensor OpRun::in(DType dtype, const Shape& shape, const Values& values) {
  auto held = std::make_unique<Placed>();
  const auto count = static_cast<size_t>(shape.elements());
  const size_t bytes = std::max<size_t>(1, count * size_of(dtype));
  const Buffer host(bytes);
  const Tensor from = host.tensor(dtype, shape);
  // What no value is given for is a number that no result is, so that an unwritten one shows.
  with_type(dtype, [&](auto zero) {
    using T = decltype(zero);
    for (size_t i = 0; i < count; ++i) {
      const double number = i < values.size() ? values[i] : 77;
      from.as<T>()[i] = static_cast<T>(is_float(dtype) ? rounded_to(rounded_, number) : number);
    }
  });
  held->buffer = Buffer(bytes, ops_.device);
  held->tensor = held->buffer.tensor(dtype, shape);
  if (ops_.device == nullptr) {
    std::memcpy(held->tensor.data, from.data, count * size_of(dtype));
  } else {
    ops_.copy(stream_, held->tensor, from);
    stream_.synchronize();
  }
  held_.push_back(std::move(held));
  return held_.back()->tensor;
}

Tensor OpRun::out(DType dtype, const Shape& shape, const Values& values) {
  const Tensor tensor = in(dtype, shape, values);
  held_.back()->compared = true;
  return tensor;
}

Tensor OpRun::exact(DType dtype, const Shape& shape, const Values& values) {
  const Tensor tensor = out(dtype, shape, values);
  held_.back()->exact = true;
  return tensor;
}

Tensor OpRun::summed(const Shape& shape, const Values& values) {
  const Tensor tensor = out(wide(), shape, values);
  held_.back()->summed = true;
  return tensor;
}

std::vector<OpRun::Result> OpRun::results() {
  std::vector<Result> all;
  for (const auto& held : held_) {
    if (!held->compared) continue;
    const Tensor& tensor = held->tensor;
    const Buffer host(std::max<size_t>(1, tensor.bytes()));
    const Tensor to = host.tensor(tensor.dtype, tensor.shape);
    if (ops_.device != nullptr) ops_.copy(stream_, to, tensor);
    stream_.synchronize();
    if (ops_.device == nullptr) std::memcpy(to.data, tensor.data, tensor.bytes());
    Result result{held->summed ? dtype_ : tensor.dtype, held->exact,
                  Values(static_cast<size_t>(tensor.elements()))};
    with_type(tensor.dtype, [&](auto zero) {
      using T = decltype(zero);
      for (size_t i = 0; i < result.values.size(); ++i) result.values[i] = static_cast<double>(to.as<T>()[i]);
    });
    all.push_back(std::move(result));
  }
  return all;
}

void check_case(const OpCase& test, const OpTable& ops, Stream& stream) {
  ThreadPool pool(1);
  Stream host(Stream::Mode::Inline, pool);
  for (DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
    if (test.wide_only && accumulate_type(dtype) != dtype) continue;
    SCOPED_TRACE(fmt::format("{} in {}", test.name, name_of(dtype)));
    const auto exact = run(test, cpu_ops(), host, dtype, dtype);
    const auto reference = run(test, cpu_ops(), host, DType::F64, dtype);
    const auto got = run(test, ops, stream, dtype, dtype);
    ASSERT_EQ(got.size(), reference.size());
    ASSERT_FALSE(got.empty()) << "the case compares nothing";
    for (size_t i = 0; i < got.size(); ++i) {
      if (got[i].exact)
        EXPECT_EQ(got[i].values, exact[i].values) << "output " << i;
      else
        EXPECT_LE(distance(got[i].values, reference[i].values), test.slack * tolerance_of(got[i].dtype))
            << "output " << i;
    }
  }
}

void expect_every_entry_has_a_case() {
  std::set<size_t> covered;
  for (const auto& list : {op_cases(), recommender_op_cases()})
    for (const OpCase& test : list) covered.insert(test.entries.begin(), test.entries.end());
  for (size_t at = entry(&OpTable::fill); at < sizeof(OpTable); at += sizeof(void (*)()))
    EXPECT_EQ(covered.count(at), 1U) << "entry " << (at - entry(&OpTable::fill)) / sizeof(void (*)())
                                     << " of OpTable, counted from fill, has no case";
}

Values before_sum(const Values& values, bool accumulate) {
  return accumulate ? values : Values(values.size(), std::numeric_limits<double>::quiet_NaN());
}

Values normal(int64_t count, uint64_t seed) {
  const PhiloxKey key = philox_key(seed, "conformance");
  Values values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = philox_normal(key, i);
  return values;
}

Values whole(int64_t count, uint64_t seed, int64_t limit) {
  const PhiloxKey key = philox_key(seed, "conformance of whole numbers");
  Values values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<double>(philox_word(key, i) % static_cast<uint64_t>(limit));
  return values;
}

Body each_count(const std::function<void(OpRun&, int64_t)>& body) {
  return [body](OpRun& run) {
    for (int64_t n : {1, 3, 17, 1024, 4099}) body(run, n);
  };
}

}  // namespace trifold::conformance
