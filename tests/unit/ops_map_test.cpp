// Elementwise functions of strided views against a second definition and by finite differences, and softmax.
#include <limits>
#include <set>

#include "support/views.h"
#include "unit/ops_support.h"

namespace trifold::ops_test::maps {
namespace {

using test::Draw;
using test::FittedView;
using test::over_box;
using test::place;
using test::random_view;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kRootHalf = 0.70710678118654752440;

struct In {
  double x0, x1, x2, a, b;
};

double gelu(double x) { return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
double gelu_slope(double x) {
  const double t = std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return (1 + t) / 2 + x / 2 * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}
double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double bell(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); }
double below(double x) { return std::erfc(-x * kRootHalf) / 2; }

// The definition of a function by the standard library.
struct Definition {
  MapOp op;
  std::function<double(const In&)> f;
  bool positive = false;  // whether its inputs must be positive
  double a = 0.75, b = 0.25;
};

const std::vector<Definition>& definitions() {
  static const std::vector<Definition> kAll{
      {MapOp::Identity, [](const In& in) { return in.x0; }},
      {MapOp::Linear, [](const In& in) { return in.a * in.x0 + in.b; }},
      {MapOp::Neg, [](const In& in) { return -in.x0; }},
      {MapOp::Abs, [](const In& in) { return std::abs(in.x0); }},
      {MapOp::Log, [](const In& in) { return std::log(in.x0); }, true},
      {MapOp::Log1p, [](const In& in) { return std::log1p(in.x0); }, true},
      {MapOp::Exp, [](const In& in) { return std::exp(in.x0); }},
      {MapOp::Sqrt, [](const In& in) { return std::sqrt(in.x0); }, true},
      {MapOp::Rsqrt, [](const In& in) { return 1 / std::sqrt(in.x0); }, true},
      {MapOp::Reciprocal, [](const In& in) { return 1 / in.x0; }, true},
      {MapOp::Square, [](const In& in) { return in.x0 * in.x0; }},
      {MapOp::Cos, [](const In& in) { return std::cos(in.x0); }},
      {MapOp::Sin, [](const In& in) { return std::sin(in.x0); }},
      {MapOp::Erf, [](const In& in) { return std::erf(in.x0); }},
      {MapOp::Tanh, [](const In& in) { return std::tanh(in.x0); }},
      {MapOp::Sigmoid, [](const In& in) { return logistic(in.x0); }},
      {MapOp::Relu, [](const In& in) { return std::max(in.x0, 0.0); }},
      {MapOp::Silu, [](const In& in) { return in.x0 * logistic(in.x0); }},
      {MapOp::Gelu, [](const In& in) { return gelu(in.x0); }},
      {MapOp::GeluErf, [](const In& in) { return in.x0 * below(in.x0); }},
      {MapOp::Power, [](const In& in) { return std::pow(in.x0, in.a); }, true},
      {MapOp::Clamp, [](const In& in) { return std::min(std::max(in.x0, in.a), in.b); }, false, -0.5, 0.75},
      {MapOp::IsZero, [](const In& in) { return in.x0 == 0 ? 1.0 : 0.0; }},
      {MapOp::AbsGrad, [](const In& in) { return in.x1 == 0 ? 0 : std::copysign(1.0, in.x1) * in.x0; }},
      {MapOp::LogGrad, [](const In& in) { return in.x0 / in.x1; }, true},
      {MapOp::Log1pGrad, [](const In& in) { return in.x0 / (1 + in.x1); }, true},
      {MapOp::ExpGrad, [](const In& in) { return in.x0 * in.x1; }},
      {MapOp::SqrtGrad, [](const In& in) { return in.x0 / (2 * in.x1); }, true},
      {MapOp::RsqrtGrad, [](const In& in) { return -in.x0 / 2 * std::pow(in.x1, 3); }, true},
      {MapOp::ReciprocalGrad, [](const In& in) { return -in.x0 * in.x1 * in.x1; }},
      {MapOp::SquareGrad, [](const In& in) { return 2 * in.x1 * in.x0; }},
      {MapOp::CosGrad, [](const In& in) { return -std::sin(in.x1) * in.x0; }},
      {MapOp::SinGrad, [](const In& in) { return std::cos(in.x1) * in.x0; }},
      {MapOp::ErfGrad, [](const In& in) { return 2 / std::sqrt(M_PI) * std::exp(-in.x1 * in.x1) * in.x0; }},
      {MapOp::TanhGrad, [](const In& in) { return (1 - in.x1 * in.x1) * in.x0; }},
      {MapOp::SigmoidGrad, [](const In& in) { return in.x1 * (1 - in.x1) * in.x0; }},
      {MapOp::ReluGrad, [](const In& in) { return in.x1 > 0 ? in.x0 : 0.0; }},
      {MapOp::SiluGrad,
       [](const In& in) {
         const double s = logistic(in.x1);
         return in.x0 * s * (1 + in.x1 * (1 - s));
       }},
      {MapOp::GeluGrad, [](const In& in) { return in.x0 * gelu_slope(in.x1); }},
      {MapOp::GeluErfGrad, [](const In& in) { return in.x0 * (below(in.x1) + in.x1 * bell(in.x1)); }},
      {MapOp::PowerGrad, [](const In& in) { return in.x0 * in.a * std::pow(in.x1, in.a - 1); }, true},
      {MapOp::ClampGrad, [](const In& in) { return in.a < in.x1 && in.x1 < in.b ? in.x0 : 0.0; }, false, -0.5,
       0.75},
      {MapOp::Add, [](const In& in) { return in.x0 + in.a * in.x1; }},
      {MapOp::Mul, [](const In& in) { return in.x0 * in.x1; }},
      {MapOp::Div, [](const In& in) { return in.x0 / in.x1; }, true},
      {MapOp::Minimum, [](const In& in) { return std::min(in.x0, in.x1); }},
      {MapOp::Maximum, [](const In& in) { return std::max(in.x0, in.x1); }},
      {MapOp::Equal, [](const In& in) { return in.x0 == in.x1 ? 1.0 : 0.0; }},
      {MapOp::NotEqual, [](const In& in) { return in.x0 == in.x1 ? 0.0 : 1.0; }},
      {MapOp::Less, [](const In& in) { return in.x0 < in.x1 ? 1.0 : 0.0; }},
      {MapOp::LessEqual, [](const In& in) { return in.x0 <= in.x1 ? 1.0 : 0.0; }},
      {MapOp::Greater, [](const In& in) { return in.x0 > in.x1 ? 1.0 : 0.0; }},
      {MapOp::GreaterEqual, [](const In& in) { return in.x0 >= in.x1 ? 1.0 : 0.0; }},
      {MapOp::Select, [](const In& in) { return in.x0 == 0 ? in.a : in.x1; }},
      {MapOp::SelectNot, [](const In& in) { return in.x0 == 0 ? in.x1 : in.a; }},
      {MapOp::Where, [](const In& in) { return in.x0 == 0 ? in.x2 : in.x1; }},
      {MapOp::DivGrad, [](const In& in) { return -in.x0 * in.x1 / in.x2; }, true},
      {MapOp::MinimumGrad,
       [](const In& in) { return in.x1 == in.x2  ? in.x0 / 2
                                 : in.x1 < in.x2 ? in.x0
                                                 : 0.0; }},
      {MapOp::MaximumGrad,
       [](const In& in) { return in.x1 == in.x2  ? in.x0 / 2
                                 : in.x1 > in.x2 ? in.x0
                                                 : 0.0; }},
  };
  return kAll;
}

const Definition& definition_of(MapOp op) {
  for (const Definition& one : definitions())
    if (one.op == op) return one;
  fail("MapOp {} has no second definition in this test", name_of(op));
}

// Every MapOp.
std::vector<MapOp> all_ops() {
  std::vector<MapOp> ops;
  for (int number = 0; number < kMapOps; ++number) ops.push_back(static_cast<MapOp>(number));
  return ops;
}

// Numbers of both signs, some of them 0 or equal in all inputs, so that comparisons have every result.
std::array<Values, 3> inputs_for(const Definition& one, int64_t count) {
  std::array<Values, 3> x{random_values(count, 1), random_values(count, 2), random_values(count, 3)};
  for (size_t i = 0; i < size_t(count); ++i) {
    if (i % 7 == 3) x[0][i] = 0;
    if (i % 5 == 2) x[0][i] = x[1][i] = x[2][i];
    if (i % 11 == 1) x[1][i] = 0;
    for (Values& values : x)
      if (one.positive) values[i] = std::abs(values[i]) + 0.5;
  }
  return x;
}

Map map_of(const Definition& one, const Box& box) {
  const StridedView view = contiguous_view(box);
  return {one.op, one.a, one.b, box, {view, view, view}};
}

TEST(Map, EveryFunctionAgreesWithItsSecondDefinition) {
  constexpr int64_t kCount = 2500;  // several blocks, the last of them not whole
  for (MapOp op : all_ops()) {
    SCOPED_TRACE(name_of(op));
    const Definition& one = definition_of(op);
    const auto x = inputs_for(one, kCount);
    Values y;
    for (size_t i = 0; i < size_t(kCount); ++i) y.push_back(one.f({x[0][i], x[1][i], x[2][i], one.a, one.b}));
    check_everywhere({y}, [&](const OpTable& ops, Stream& stream, DType dtype) {
      std::vector<Host> in;
      for (int i = 0; i < inputs_of(op); ++i) in.push_back(Host(dtype, {kCount}, x[size_t(i)]));
      const std::vector<Tensor> tensors(in.begin(), in.end());
      const Host out(dtype, {kCount});
      ops.map(stream, out, tensors, map_of(one, {1, {kCount}}));
      return Outputs{out.values()};
    });
  }
}

// In 16 bits, inputs are what they are, and the result is rounded once from f32.
TEST(Map, EveryFunctionInSixteenBits) {
  constexpr int64_t kCount = 300;
  with_every_table([&](const OpTable& ops, Stream& stream) {
    for (MapOp op : all_ops())
      for (DType dtype : {DType::BF16, DType::F16}) {
        SCOPED_TRACE(fmt::format("{} in {}", name_of(op), name_of(dtype)));
        const Definition& one = definition_of(op);
        const auto x = inputs_for(one, kCount);
        std::vector<Host> in;
        for (int i = 0; i < inputs_of(op); ++i) in.push_back(Host(dtype, {kCount}, x[size_t(i)]));
        const std::vector<Tensor> tensors(in.begin(), in.end());
        const Host out(dtype, {kCount});
        ops.map(stream, out, tensors, map_of(one, {1, {kCount}}));
        const Values y = out.values();
        std::array<Values, 3> rounded;
        for (size_t i = 0; i < in.size(); ++i) rounded[i] = in[i].values();
        const double unit = dtype == DType::BF16 ? 0x1p-8 : 0x1p-11;
        for (size_t i = 0; i < y.size(); ++i) {
          const auto at = [&](size_t input) { return input < in.size() ? rounded[input][i] : 0; };
          const double expected = one.f({at(0), at(1), at(2), one.a, one.b});
          ASSERT_LE(std::abs(y[i] - expected), unit * std::abs(expected) + 1e-6) << "element " << i;
        }
      }
  });
}

TEST(Map, NaNsAndInfinitiesPass) {
  with_every_table([](const OpTable& ops, Stream& stream) {
    const Values numbers{kNaN, INFINITY, -INFINITY, 0, 2, -2, kNaN};
    const auto count = static_cast<int64_t>(numbers.size());
    const Host x(DType::F32, {count}, numbers), y(DType::F32, {count});
    const Host zero(DType::F32, {count}, Values(numbers.size(), 0));
    const Box box{1, {count}};
    const auto mapped = [&](MapOp op, double a, double b, std::vector<Tensor> in) {
      const StridedView view = contiguous_view(box);
      ops.map(stream, y, in, {op, a, b, box, {view, view, view}});
      return y.values();
    };
    const auto expect = [](const Values& got, const Values& expected) {
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i])))
            << "element " << i << " is " << got[i] << ", not " << expected[i];
    };
    expect(mapped(MapOp::Relu, 0, 0, {x}), {kNaN, INFINITY, 0, 0, 2, 0, kNaN});
    expect(mapped(MapOp::Clamp, -1, INFINITY, {x}), {kNaN, INFINITY, -1, 0, 2, -1, kNaN});
    expect(mapped(MapOp::Clamp, -INFINITY, 1, {x}), {kNaN, 1, -INFINITY, 0, 1, -2, kNaN});
    expect(mapped(MapOp::Minimum, 0, 0, {x, zero}), {kNaN, 0, -INFINITY, 0, 0, -2, kNaN});
    expect(mapped(MapOp::Minimum, 0, 0, {zero, x}), {kNaN, 0, -INFINITY, 0, 0, -2, kNaN});
    expect(mapped(MapOp::Maximum, 0, 0, {x, zero}), {kNaN, INFINITY, 0, 0, 2, 0, kNaN});
    expect(mapped(MapOp::Maximum, 0, 0, {zero, x}), {kNaN, INFINITY, 0, 0, 2, 0, kNaN});
    expect(mapped(MapOp::PowerGrad, 0, 0, {x, zero}), Values(numbers.size(), 0));
    expect(mapped(MapOp::Select, -INFINITY, 0, {x, zero}), {0, 0, 0, -INFINITY, 0, 0, 0});
    // At its bounds a clamped number has no gradient.
    const Host bounds(DType::F32, {count}, {-1, 1, 0.5, -0.5, 2, -2, 0});
    const Host one(DType::F32, {count}, Values(numbers.size(), 1));
    expect(mapped(MapOp::ClampGrad, -1, 1, {one, bounds}), {0, 0, 1, 1, 0, 0, 1});
  });
}

// y = f(x) in f64, of whole tensors.
Values mapped(const OpTable& ops, Stream& stream, const Definition& one, const std::vector<Values>& x) {
  const auto count = static_cast<int64_t>(x[0].size());
  std::vector<Host> in;
  for (const Values& values : x) in.push_back(Host(DType::F64, {count}, values));
  const std::vector<Tensor> tensors(in.begin(), in.end());
  const Host out(DType::F64, {count});
  ops.map(stream, out, tensors, map_of(one, {1, {count}}));
  return out.values();
}

// How the gradient of one input of a function is computed: by `gradient` of dy, x[k] and y, chosen by `from`.
enum class From { Dy, X0, X1, X2, Y };
struct Gradient {
  MapOp op;
  int input;
  MapOp gradient;
  std::vector<From> from;
  double a = 0.75;  // the constant of the gradient
};

const std::vector<Gradient>& gradients() {
  using enum From;
  static const std::vector<Gradient> kAll{
      {MapOp::Identity, 0, MapOp::Identity, {Dy}},
      {MapOp::Linear, 0, MapOp::Linear, {Dy}},
      {MapOp::Neg, 0, MapOp::Neg, {Dy}},
      {MapOp::Abs, 0, MapOp::AbsGrad, {Dy, X0}},
      {MapOp::Log, 0, MapOp::LogGrad, {Dy, X0}},
      {MapOp::Log1p, 0, MapOp::Log1pGrad, {Dy, X0}},
      {MapOp::Exp, 0, MapOp::ExpGrad, {Dy, Y}},
      {MapOp::Sqrt, 0, MapOp::SqrtGrad, {Dy, Y}},
      {MapOp::Rsqrt, 0, MapOp::RsqrtGrad, {Dy, Y}},
      {MapOp::Reciprocal, 0, MapOp::ReciprocalGrad, {Dy, Y}},
      {MapOp::Square, 0, MapOp::SquareGrad, {Dy, X0}},
      {MapOp::Cos, 0, MapOp::CosGrad, {Dy, X0}},
      {MapOp::Sin, 0, MapOp::SinGrad, {Dy, X0}},
      {MapOp::Erf, 0, MapOp::ErfGrad, {Dy, X0}},
      {MapOp::Tanh, 0, MapOp::TanhGrad, {Dy, Y}},
      {MapOp::Sigmoid, 0, MapOp::SigmoidGrad, {Dy, Y}},
      {MapOp::Relu, 0, MapOp::ReluGrad, {Dy, Y}},
      {MapOp::Silu, 0, MapOp::SiluGrad, {Dy, X0}},
      {MapOp::Gelu, 0, MapOp::GeluGrad, {Dy, X0}},
      {MapOp::GeluErf, 0, MapOp::GeluErfGrad, {Dy, X0}},
      {MapOp::Power, 0, MapOp::PowerGrad, {Dy, X0}},
      {MapOp::Clamp, 0, MapOp::ClampGrad, {Dy, X0}},
      {MapOp::Add, 0, MapOp::Identity, {Dy}},
      {MapOp::Add, 1, MapOp::Linear, {Dy}},
      {MapOp::Mul, 0, MapOp::Mul, {Dy, X1}},
      {MapOp::Mul, 1, MapOp::Mul, {Dy, X0}},
      {MapOp::Div, 0, MapOp::Div, {Dy, X1}},
      {MapOp::Div, 1, MapOp::DivGrad, {Dy, Y, X1}},
      {MapOp::Minimum, 0, MapOp::MinimumGrad, {Dy, X0, X1}},
      {MapOp::Minimum, 1, MapOp::MinimumGrad, {Dy, X1, X0}},
      {MapOp::Maximum, 0, MapOp::MaximumGrad, {Dy, X0, X1}},
      {MapOp::Maximum, 1, MapOp::MaximumGrad, {Dy, X1, X0}},
      {MapOp::Select, 1, MapOp::Select, {X0, Dy}, 0},
      {MapOp::SelectNot, 1, MapOp::SelectNot, {X0, Dy}, 0},
      {MapOp::Where, 1, MapOp::Select, {X0, Dy}, 0},
      {MapOp::Where, 2, MapOp::SelectNot, {X0, Dy}, 0},
  };
  return kAll;
}

// Functions that are constant between jumps: their gradients are 0 and never computed.
const std::set<MapOp>& steps() {
  static const std::set<MapOp> kAll{MapOp::IsZero,    MapOp::Equal,   MapOp::NotEqual,    MapOp::Less,
                                    MapOp::LessEqual, MapOp::Greater, MapOp::GreaterEqual};
  return kAll;
}

TEST(Map, GradientsAreThoseOfFiniteDifferences) {
  constexpr int64_t kCount = 40;
  with_every_table([&](const OpTable& ops, Stream& stream) {
    for (const Gradient& one : gradients()) {
      SCOPED_TRACE(fmt::format("{} by {}", name_of(one.op), name_of(one.gradient)));
      const Definition& function = definition_of(one.op);
      std::vector<Values> x;
      for (int i = 0; i < inputs_of(one.op); ++i) x.push_back(random_values(kCount, uint64_t(20 + i)));
      for (Values& values : x)
        for (size_t i = 0; i < values.size(); ++i) {
          if (function.positive) values[i] = std::abs(values[i]) + 0.5;
          if (&values == &x[0] && one.input > 0 && i % 3 == 0 && !function.positive) values[i] = 0;
        }
      const Values dy = random_values(kCount, 30);
      const auto y_of = [&](const std::vector<Values>& inputs) {
        return mapped(ops, stream, function, inputs);
      };
      std::vector<Values> in;
      for (From from : one.from)
        in.push_back(from == From::Dy ? dy : from == From::Y ? y_of(x) : x[size_t(from) - size_t(From::X0)]);
      Definition gradient = definition_of(one.gradient);
      gradient.a = one.gradient == MapOp::ClampGrad ? function.a : one.a;
      gradient.b = one.gradient == MapOp::ClampGrad ? function.b : 0;
      const auto loss = [&](const Values& moved) {
        std::vector<Values> inputs = x;
        inputs[size_t(one.input)] = moved;
        return dot(dy, y_of(inputs));
      };
      check_gradient(loss, x[size_t(one.input)], mapped(ops, stream, gradient, in), 1e-8);
    }
  });
}

TEST(Map, EveryFunctionHasAGradientOrIsOne) {
  std::set<MapOp> known = steps();
  for (const Gradient& one : gradients()) {
    known.insert(one.op);
    known.insert(one.gradient);
  }
  for (MapOp op : all_ops()) EXPECT_EQ(known.count(op), 1U) << name_of(op);
}

TEST(Map, HasNames) {
  EXPECT_STREQ(name_of(MapOp::Identity), "Identity");
  EXPECT_STREQ(name_of(MapOp::GeluErfGrad), "GeluErfGrad");
  EXPECT_STREQ(name_of(MapOp::MaximumGrad), "MaximumGrad");
}

// ---- views ----

TEST(Map, OfStridedViewsIsTheLoop) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(fmt::format("box {}", seed));
    Draw draw(seed + 900);
    const Box box = draw.box(seed % 10 == 0 ? 12 : 5);
    const MapOp op = std::array{MapOp::Linear, MapOp::Add, MapOp::Where}[seed % 3];
    const Definition& one = definition_of(op);
    Map map{op, one.a, one.b, box, {}};
    std::vector<Values> x;
    for (int i = 0; i < inputs_of(op); ++i) {
      const FittedView from = random_view(draw, box, 4);
      map.from[size_t(i)] = from.view;
      x.push_back(random_values(from.elements, seed * 10 + uint64_t(i)));
    }
    if (op == MapOp::Where)
      for (double& number : x[0]) number = number > 0 ? 1 : 0;
    Values y;
    over_box(box, [&](const AxisNumbers& i) {
      const auto at = [&](size_t input) {
        return input < x.size() ? x[input][place(map.from[input], i)] : 0;
      };
      y.push_back(one.f({at(0), at(1), at(2), one.a, one.b}));
    });
    check_everywhere({y}, [&](const OpTable& ops, Stream& stream, DType dtype) {
      std::vector<Host> in;
      for (const Values& values : x) in.push_back(Host(dtype, {static_cast<int64_t>(values.size())}, values));
      const std::vector<Tensor> tensors(in.begin(), in.end());
      const Host out(dtype, {box.elements()});
      ops.map(stream, out, tensors, map);
      return Outputs{out.values()};
    });
  }
}

// y = y + a x, where x is a matrix, a row, a column, a number and a transposed matrix, in place, for several workers.
TEST(Map, WritesToAnInput) {
  const int64_t rows = 150, columns = 211;
  const Box box{2, {rows, columns}};
  for (const AxisNumbers& strides : {AxisNumbers{columns, 1}, AxisNumbers{0, 1}, AxisNumbers{1, 0},
                                     AxisNumbers{0, 0}, AxisNumbers{1, rows}}) {
    SCOPED_TRACE(fmt::format("strides {}, {}", strides[0], strides[1]));
    const Values x = random_values(rows * columns, 1), before = random_values(rows * columns, 2);
    Values after = before;
    for (size_t i = 0; i < after.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      after[i] -= 0.5 * x[size_t(at / columns * strides[0] + at % columns * strides[1])];
    }
    check_everywhere({after}, [&](const OpTable& ops, Stream& stream, DType dtype) {
      const Host y(dtype, {rows, columns}, before), in(dtype, {rows, columns}, x);
      ops.map(stream, y, std::vector<Tensor>{y, in},
              {MapOp::Add, -0.5, 0, box, {contiguous_view(box), StridedView{0, strides}}});
      return Outputs{y.values()};
    });
  }
}

// ---- softmax ----

// Softmax and its logarithm of each row, in f64.
std::array<Values, 2> softmax_of(const Values& x, size_t columns) {
  std::array<Values, 2> y{Values(x.size()), Values(x.size())};
  for (size_t row = 0; row < x.size(); row += columns) {
    const double most = *std::max_element(&x[row], &x[row] + columns);
    double sum = 0;
    for (size_t c = row; c < row + columns; ++c) sum += std::exp(x[c] - most);
    for (size_t c = row; c < row + columns; ++c) {
      y[1][c] = x[c] - most - std::log(sum);
      y[0][c] = std::exp(y[1][c]);
    }
  }
  return y;
}

TEST(Softmax, IsTheFormulaInPlaceToo) {
  for (const auto& [rows, columns] :
       {std::array<int64_t, 2>{1, 1}, {70, 3}, {37, 128}, {3, 1024}, {2, 4101}, {300, 65}}) {
    SCOPED_TRACE(fmt::format("{} rows of {}", rows, columns));
    Values x = random_values(rows * columns, 1);
    for (double& number : x) number *= 8;
    const auto [y, log_y] = softmax_of(x, size_t(columns));
    check_everywhere(
        {y, log_y, y, log_y},
        [&, rows = rows, columns = columns](const OpTable& ops, Stream& stream, DType dtype) {
          const Host in(dtype, {rows, columns}, x), other(dtype, {rows, columns}, x);
          const Host out(dtype, {rows, columns}), log_out(dtype, {rows, columns});
          ops.softmax(stream, out, in);
          ops.log_softmax(stream, log_out, in);
          ops.softmax(stream, in, in);
          ops.log_softmax(stream, other, other);
          return Outputs{out.values(), log_out.values(), in.values(), other.values()};
        },
        4e-6);
  }
}

TEST(Softmax, GradientsAreThoseOfFiniteDifferences) {
  with_every_table([](const OpTable& ops, Stream& stream) {
    const int64_t rows = 3, columns = 7;
    const Values x = random_values(rows * columns, 1), dy = random_values(rows * columns, 2);
    const auto host = [&](const Values& values) { return Host(DType::F64, {rows, columns}, values); };
    for (bool logarithm : {false, true}) {
      SCOPED_TRACE(logarithm ? "log_softmax" : "softmax");
      const auto forward = [&](const Values& values) {
        const Host y = host(values);
        logarithm ? ops.log_softmax(stream, y, y) : ops.softmax(stream, y, y);
        return y.values();
      };
      const Host dx = host(dy);
      if (logarithm)
        ops.log_softmax_backward(stream, dx, dx, host(forward(x)));
      else
        ops.softmax_backward(stream, dx, dx, host(forward(x)));
      check_gradient([&](const Values& moved) { return dot(dy, forward(moved)); }, x, dx.values(), 1e-9);
    }
  });
}

// Attention masks keys by -infinity or by the lowest number; a query may see no key.
TEST(Softmax, OfMaskedRows) {
  with_every_table([](const OpTable& ops, Stream& stream) {
    for (DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
      SCOPED_TRACE(name_of(dtype));
      const Host x(dtype, {4, 4},
                   {-INFINITY, -INFINITY, -INFINITY, -INFINITY, 1, -INFINITY, 1, -INFINITY, -60000, -60000,
                    -60000, -60000, 0, kNaN, 0, 0});
      const Host y(dtype, {4, 4}), dx(dtype, {4, 4});
      ops.softmax(stream, y, x);
      const Values rows = y.values();
      EXPECT_EQ(Values(rows.begin(), rows.begin() + 12),
                (Values{0, 0, 0, 0, 0.5, 0, 0.5, 0, 0.25, 0.25, 0.25, 0.25}));
      EXPECT_TRUE(std::isnan(rows[12]) && std::isnan(rows[13]));
      ops.softmax_backward(stream, dx, Host(dtype, {4, 4}, Values(16, 3)), y);
      const Values gradient = dx.values();
      EXPECT_EQ(Values(gradient.begin(), gradient.begin() + 12), Values(12, 0));
    }
  });
}

}  // namespace
}  // namespace trifold::ops_test::maps
