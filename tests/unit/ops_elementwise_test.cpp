#include <cmath>
#include <limits>
#include <numbers>

#include "core/error.h"
#include "unit/ops_support.h"

namespace trifold::ops_test {
namespace {

// Sizes around vector widths and around what a second worker is woken for.
const std::vector<int64_t> kSizes{1, 7, 64, 1000, 40007};

Values map(const Values& x, const std::function<double(double)>& f) {
  Values y(x.size());
  std::transform(x.begin(), x.end(), y.begin(), f);
  return y;
}

double gelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

TEST(Elementwise, FillScaleCopyAdd) {
  for (int64_t n : kSizes) {
    const Values a = random_values(n, 1);
    const Values b = random_values(n, 2);
    Values sum(a.size());
    for (size_t i = 0; i < a.size(); ++i) sum[i] = a[i] + b[i];
    const Outputs expected{Values(a.size(), 0.5), map(a, [](double x) { return -3 * x; }), a, sum, sum};
    check_everywhere(expected, [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
      const Host filled(dtype, {n});
      const Host scaled(dtype, {n}, a);
      const Host copied(dtype, {n});
      const Host added(dtype, {n});
      const Host in_place(dtype, {n}, a);
      ops.fill(stream, filled, 0.5);
      ops.scale(stream, scaled, -3);
      ops.copy(stream, copied, Host(dtype, {n}, a));
      ops.add(stream, added, Host(dtype, {n}, a), Host(dtype, {n}, b));
      ops.add(stream, in_place, in_place, Host(dtype, {n}, b));
      return {filled.values(), scaled.values(), copied.values(), added.values(), in_place.values()};
    });
  }
}

TEST(Elementwise, ReduceSumAndMaxOfFloatsAndWholeNumbers) {
  const int64_t n = 40007;
  const Values a = map(random_values(n, 1), [](double x) { return std::round(1000 * x); });
  const Values b = map(random_values(n, 2), [](double x) { return std::round(1000 * x); });
  Values sum(a.size());
  Values most(a.size());
  for (size_t i = 0; i < a.size(); ++i) {
    sum[i] = a[i] + b[i];
    most[i] = std::max(a[i], b[i]);
  }
  check_everywhere({sum, most, sum, most, sum, most}, [&](const OpTable& ops, Stream& stream, DType dtype) {
    Outputs outputs;
    for (DType type : {dtype, DType::I32, DType::I64})
      for (Reduce how : {Reduce::Sum, Reduce::Max}) {
        const Host y(type, {n}, a);
        ops.reduce(stream, y, Host(type, {n}, b), how);
        outputs.push_back(y.values());
      }
    return outputs;
  });
}

TEST(Elementwise, MaxKeepsNaNs) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  with_every_table([&](const OpTable& ops, Stream& stream) {
    for (DType dtype : {DType::F32, DType::F64}) {
      const Host y(dtype, {4}, {kNaN, 1, kNaN, 1});
      ops.reduce(stream, y, Host(dtype, {4}, {1, kNaN, kNaN, 2}), Reduce::Max);
      const Values got = y.values();
      EXPECT_TRUE(std::isnan(got[0]) && std::isnan(got[1]) && std::isnan(got[2]));
      EXPECT_EQ(got[3], 2);
    }
  });
}

TEST(Elementwise, FillRows) {
  const Values row = random_values(100, 3);
  Values expected;
  for (int r = 0; r < 501; ++r) expected.insert(expected.end(), row.begin(), row.end());
  check_everywhere({expected}, [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
    const Host y(dtype, {3, 167, 100});
    ops.fill_rows(stream, y, Host(dtype, {100}, row));
    return {y.values()};
  });
}

// The activations of feed-forward networks: the entries of the table, and what they compute.
struct FormulaCase {
  void (*OpTable::*forward)(Stream&, const Forms& y, Tensor x);
  void (*OpTable::*backward)(Stream&, const Forms& dx, Tensor dy, Tensor x);
  double (*value)(double);
};

double gelu_erf(double x) { return x / 2 * std::erfc(-x / std::numbers::sqrt2); }

double relu(double x) { return x > 0 ? x : 0; }
double squared_relu(double x) { return x > 0 ? x * x : 0; }

const FormulaCase kFormulaCases[] = {{&OpTable::gelu, &OpTable::gelu_backward, gelu},
                                     {&OpTable::gelu_erf, &OpTable::gelu_erf_backward, gelu_erf},
                                     {&OpTable::squared_relu, &OpTable::squared_relu_backward, squared_relu},
                                     {&OpTable::rectify, &OpTable::rectify_backward, relu}};

TEST(Elementwise, Activations) {
  for (int64_t n : kSizes) {
    Values x =
        map(random_values(n, 4), [](double v) { return static_cast<double>(static_cast<float>(3 * v)); });
    if (n > 10) {
      x[0] = -200;
      x[1] = 200;
      x[2] = 0;
      x[3] = 1e-6F;
      x[4] = -8;
    }
    for (const FormulaCase& form : kFormulaCases)
      check_everywhere({map(x, form.value)}, [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
        const Host y(dtype, {n});
        (ops.*form.forward)(stream, y, Host(dtype, {n}, x));
        return {y.values()};
      });
  }
}

TEST(Elementwise, SquaredReluKeepsWhatIsNoNumber) {
  const Values x{std::numeric_limits<double>::quiet_NaN(), -std::numeric_limits<double>::infinity(), -0.0, 3};
  with_every_table([&](const OpTable& ops, Stream& stream) {
    for (const DType dtype : {DType::F32, DType::F64}) {
      const Host y(dtype, {4}), dx(dtype, {4}), in(dtype, {4}, x);
      ops.squared_relu(stream, y, in);
      ops.squared_relu_backward(stream, dx, Host(dtype, {4}, {1, 1, 1, 1}), in);
      const Values value = y.values(), slope = dx.values();
      EXPECT_TRUE(std::isnan(value[0]) && std::isnan(slope[0]));
      EXPECT_EQ(Values(value.begin() + 1, value.end()), (Values{0, 0, 9}));
      EXPECT_EQ(Values(slope.begin() + 1, slope.end()), (Values{0, 0, 6}));
    }
  });
}

TEST(Elementwise, GeluIsAccurateRelativeToItself) {
  // Every value must be right to a few units in its last place, also far down the negative tail.
  Values x;
  for (double v = -9; v < 9; v += 0.01) x.push_back(static_cast<float>(v));
  const auto n = static_cast<int64_t>(x.size());
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const Host y(DType::F32, {n});
    ops.gelu(stream, y, Host(DType::F32, {n}, x));
    const Values got = y.values();
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = x[i];
      const double expected =
          v / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
      // The exponent's argument is itself rounded to f32, which its size multiplies.
      EXPECT_NEAR(got[i], expected, (2e-7 * (4 + std::abs(v * v * v) / 4)) * std::abs(expected) + 1e-37) << v;
    }
  });
}

TEST(Elementwise, GeluErfIsAccurateRelativeToItself) {
  // Every value must be right to a few units in its last place, also far down the negative tail.
  Values x;
  for (double v = -9; v < 9; v += 0.01) x.push_back(static_cast<float>(v));
  const auto n = static_cast<int64_t>(x.size());
  with_every_table([&](const OpTable& ops, Stream& stream) {
    const Host y(DType::F32, {n});
    ops.gelu_erf(stream, y, Host(DType::F32, {n}, x));
    const Values got = y.values();
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = x[i];
      const double expected = gelu_erf(v);
      // The exponent, half a square, is rounded to f32.
      EXPECT_NEAR(got[i], expected, 1.5e-7 * (4 + v * v / 2) * std::abs(expected) + 1e-37) << v;
    }
  });
}

TEST(Elementwise, BackwardOfActivationsIsTheDerivative) {
  const int64_t n = 40007;
  // The slope of the squared ReLU has a bend at 0.
  const Values x = map(random_values(n, 5), [](double v) { return std::abs(v) < 1e-3 ? 1.0 : v; });
  const Values dy = random_values(n, 6);
  for (const FormulaCase& form : kFormulaCases) {
    Values expected(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      const double h = 1e-4;
      const auto f = [&](double steps) { return form.value(x[i] + steps * h); };
      expected[i] = dy[i] * (8 * (f(1) - f(-1)) - (f(2) - f(-2))) / (12 * h);
    }
    check_everywhere(
        {expected, expected},
        [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
          const Host dx(dtype, {n});
          const Host in_place(dtype, {n}, dy);
          (ops.*form.backward)(stream, dx, Host(dtype, {n}, dy), Host(dtype, {n}, x));
          (ops.*form.backward)(stream, in_place, in_place, Host(dtype, {n}, x));
          return {dx.values(), in_place.values()};
        },
        2e-6, 1e-9);
  }
}

TEST(Elementwise, TanhAndItsDerivative) {
  const int64_t n = 1003;
  Values x = map(random_values(n, 7), [](double v) { return 3 * v; });
  x[0] = -200;
  x[1] = 200;
  x[2] = 0;
  const Values dy = random_values(n, 8);
  const Values y = map(x, [](double v) { return std::tanh(v); });
  Values slope(x.size());
  for (size_t i = 0; i < x.size(); ++i) slope[i] = dy[i] * (1 - y[i] * y[i]);
  check_everywhere(
      {y, slope},
      [&](const OpTable& ops, Stream& stream, DType dtype) -> Outputs {
        const Host out(dtype, {n}, x);
        const Host dx(dtype, {n}, dy);
        ops.tanh(stream, out, out);
        ops.tanh_backward(stream, dx, dx, out);
        return {out.values(), dx.values()};
      },
      2e-6, 1e-13);
}

TEST(Elementwise, NotANumberAndInfinityGoThrough) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  with_every_table([&](const OpTable& ops, Stream& stream) {
    for (DType dtype : {DType::F32, DType::F64}) {
      const Host y(dtype, {4});
      ops.gelu(stream, y, Host(dtype, {4}, {kNaN, kInf, 1, -1e4}));
      EXPECT_TRUE(std::isnan(y.values()[0]));
      EXPECT_EQ(y.values()[1], kInf);
      EXPECT_EQ(y.values()[3], 0);
    }
  });
}

TEST(Elementwise, ResultDoesNotDependOnWhereAPartBegins) {
  // ZeRO updates and drops slices of a tensor: a slice must give the bits the whole gives.
  const int64_t n = 1000;
  const Values x = random_values(n, 7);
  with_every_table([&](const OpTable& ops, Stream& stream) {
    for (DType dtype : {DType::F32, DType::F64}) {
      const Host whole(dtype, {n});
      const Host parts(dtype, {n});
      const Host in(dtype, {n}, x);
      ops.gelu(stream, whole, in);
      for (int64_t begin = 0; begin < n; begin += 37) {
        const int64_t end = std::min(n, begin + 37);
        ops.gelu(stream, Tensor(parts).flat(begin, end), Tensor(in).flat(begin, end));
      }
      EXPECT_EQ(whole.values(), parts.values());
    }
  });
}

TEST(Elementwise, WrongTensorsAreRefusedByNameBeforeAnyWork) {
  Machine machine(1);
  const OpTable& ops = cpu_ops();
  const Host y(DType::F32, {8});
  try {
    ops.gelu(machine.stream, y, Host(DType::F32, {7}));
    FAIL() << "a shorter input was accepted";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "gelu: x is f32 [7], but f32 with 8 elements is needed");
  }
  EXPECT_THROW(ops.add(machine.stream, y, y, Host(DType::F64, {8})), Error);
  EXPECT_THROW(ops.scale(machine.stream, Host(DType::U8, {8}), 2), Error);
  EXPECT_THROW(ops.dropout(machine.stream, y, y, Dropout{1.0, {}, 0}), Error);
}

TEST(Elementwise, WorkerStreamsRunTheSameWorkLater) {
  const int64_t n = 40007;
  ThreadPool pool(2);
  Stream worker(Stream::Mode::Worker, pool);
  const Host x(DType::F32, {n}, random_values(n, 1));
  const Host later(DType::F32, {n});
  const Host now(DType::F32, {n});
  for (const OpTable* ops : all_cpu_ops()) {
    ops->gelu(worker, later, x);
    ops->scale(worker, later, 3);
    worker.synchronize();
    Machine machine(1);
    ops->gelu(machine.stream, now, x);
    ops->scale(machine.stream, now, 3);
    EXPECT_EQ(later.values(), now.values());
  }
}

TEST(Elementwise, DryStreamsTouchNothing) {
  ThreadPool pool(1);
  Stream dry(Stream::Mode::Dry, pool);
  const Tensor nothing{nullptr, DType::F32, {8, 8}};
  cpu_ops().add(dry, nothing, nothing, nothing);
  cpu_ops().gemm(dry, nothing, nothing, false, nothing, true, 1, 0);
  EXPECT_THROW(cpu_ops().gemm(dry, nothing, nothing.rows(0, 4), false, nothing, true, 1, 0), Error);
}

}  // namespace
}  // namespace trifold::ops_test
