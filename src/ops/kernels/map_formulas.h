// The formulas of OpTable::map, one for each MapOp, and their list, from which the kernels of all back ends, the checks
// and the names follow.
#pragma once

#include "ops/kernels/formulas.h"
#include "ops/map_op.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// What a formula is given; it reads as many inputs as its line in MapList says.
template <class T>
struct MapArguments {
  T x0, x1, x2;
  T a, b;
};

namespace formula {

// A function or a gradient that is also an activation.
template <class Formula>
struct ForwardOf {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return Formula::forward(in.x0);
  }
};
template <class Formula>
struct SlopeOf {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 * Formula::slope(in.x1);
  }
};

struct Identity {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0;
  }
};
struct Linear {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.a * in.x0 + in.b;
  }
};
struct Neg {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return -in.x0;
  }
};
struct Abs {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return magnitude_of(in.x0);
  }
};
struct Log {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return log_of(in.x0);
  }
};
struct Log1p {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return log1p_of(in.x0);
  }
};
struct Exp {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return exp_of(in.x0);
  }
};
struct Sqrt {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return root_of(in.x0);
  }
};
struct Rsqrt {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return InverseRoot<T>{0}(in.x0);
  }
};
struct Reciprocal {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return 1 / in.x0;
  }
};
struct Square {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 * in.x0;
  }
};
struct Cos {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return cos_of(in.x0);
  }
};
struct Sin {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return sin_of(in.x0);
  }
};
struct Erf {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return erf_of(in.x0);
  }
};
struct Sigmoid {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return sigmoid_of(in.x0);
  }
};
struct Relu {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 < 0 ? T(0) : in.x0;
  }
};
struct Silu {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return Swiglu::forward(in.x0, T(1));
  }
};
struct Power {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return power_of(in.x0, in.a);
  }
};
struct Clamp {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    const T least = in.x0 < in.a ? in.a : in.x0;
    return least > in.b ? in.b : least;
  }
};
struct IsZero {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 == 0 ? T(1) : T(0);
  }
};

struct AbsGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    const T below = in.x1 < 0 ? -in.x0 : T(0);
    return in.x1 > 0 ? in.x0 : below;
  }
};
// A gradient of 0 stays 0 where the logarithm is infinite, because a clamp or a mask behind it lets none pass.
struct LogGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 == 0 ? T(0) : in.x0 / in.x1;
  }
};
struct Log1pGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 == 0 ? T(0) : in.x0 / (1 + in.x1);
  }
};
struct ExpGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 * in.x1;
  }
};
struct SqrtGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 / (2 * in.x1);
  }
};
struct RsqrtGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return T(-0.5) * in.x0 * (in.x1 * in.x1 * in.x1);
  }
};
struct ReciprocalGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return -in.x0 * (in.x1 * in.x1);
  }
};
struct SquareGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return 2 * in.x0 * in.x1;
  }
};
struct CosGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return -in.x0 * sin_of(in.x1);
  }
};
struct SinGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 * cos_of(in.x1);
  }
};
struct ErfGrad {
  static constexpr double kAtZero = 1.12837916709551257390;  // 2 / sqrt(pi)
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 * T(kAtZero) * exp_of(-in.x1 * in.x1);
  }
};
struct SigmoidGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 * in.x1 * (1 - in.x1);
  }
};
struct ReluGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x1 > 0 ? in.x0 : T(0);
  }
};
struct SiluGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    T dx = 0;
    T unused = 0;
    Swiglu::backward(dx, unused, in.x0, in.x1, T(1));
    return dx;
  }
};
struct PowerGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.a == 0 ? T(0) : in.x0 * in.a * power_of(in.x1, in.a - 1);
  }
};
struct ClampGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    const T below_b = in.x1 < in.b ? in.x0 : T(0);
    return in.x1 > in.a ? below_b : T(0);
  }
};

struct Add {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 + in.a * in.x1;
  }
};
struct Mul {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 * in.x1;
  }
};
struct Div {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 / in.x1;
  }
};
struct Minimum {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return -maximum_of(-in.x0, -in.x1);
  }
};
struct Maximum {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return maximum_of(in.x0, in.x1);
  }
};
struct Equal {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 == in.x1 ? T(1) : T(0);
  }
};
struct NotEqual {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 != in.x1 ? T(1) : T(0);
  }
};
struct Less {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 < in.x1 ? T(1) : T(0);
  }
};
struct LessEqual {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 <= in.x1 ? T(1) : T(0);
  }
};
struct Greater {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 > in.x1 ? T(1) : T(0);
  }
};
struct GreaterEqual {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 >= in.x1 ? T(1) : T(0);
  }
};
struct Select {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 != 0 ? in.x1 : in.a;
  }
};
struct SelectNot {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 != 0 ? in.a : in.x1;
  }
};

struct Where {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return in.x0 != 0 ? in.x1 : in.x2;
  }
};
struct DivGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    return -in.x0 * in.x1 / in.x2;
  }
};
struct MinimumGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    const T at_tie = in.x1 == in.x2 ? in.x0 * T(0.5) : T(0);
    return in.x1 < in.x2 ? in.x0 : at_tie;
  }
};
struct MaximumGrad {
  template <class T>
  [[gnu::always_inline]] HD static inline T of(const MapArguments<T>& in) {
    const T at_tie = in.x1 == in.x2 ? in.x0 * T(0.5) : T(0);
    return in.x1 > in.x2 ? in.x0 : at_tie;
  }
};

}  // namespace formula

template <MapOp Op, int Inputs, class Formula>
struct MapLine {
  static constexpr MapOp kOp = Op;
  static constexpr int kInputs = Inputs;
  using Of = Formula;
};

template <class... Lines>
struct MapLines {
  static constexpr int kCount = sizeof...(Lines);
  static constexpr bool follows_map_op() {
    int next = 0;
    return ((static_cast<int>(Lines::kOp) == next++) && ...);
  }
};

// Every function with its number of inputs and its formula, in the order of MapOp.
using MapList = MapLines<
    MapLine<MapOp::Identity, 1, formula::Identity>, MapLine<MapOp::Linear, 1, formula::Linear>,
    MapLine<MapOp::Neg, 1, formula::Neg>, MapLine<MapOp::Abs, 1, formula::Abs>,
    MapLine<MapOp::Log, 1, formula::Log>, MapLine<MapOp::Log1p, 1, formula::Log1p>,
    MapLine<MapOp::Exp, 1, formula::Exp>, MapLine<MapOp::Sqrt, 1, formula::Sqrt>,
    MapLine<MapOp::Rsqrt, 1, formula::Rsqrt>, MapLine<MapOp::Reciprocal, 1, formula::Reciprocal>,
    MapLine<MapOp::Square, 1, formula::Square>, MapLine<MapOp::Cos, 1, formula::Cos>,
    MapLine<MapOp::Sin, 1, formula::Sin>, MapLine<MapOp::Erf, 1, formula::Erf>,
    MapLine<MapOp::Tanh, 1, formula::ForwardOf<Tanh>>, MapLine<MapOp::Sigmoid, 1, formula::Sigmoid>,
    MapLine<MapOp::Relu, 1, formula::Relu>, MapLine<MapOp::Silu, 1, formula::Silu>,
    MapLine<MapOp::Gelu, 1, formula::ForwardOf<Gelu>>,
    MapLine<MapOp::GeluErf, 1, formula::ForwardOf<GeluErf>>, MapLine<MapOp::Power, 1, formula::Power>,
    MapLine<MapOp::Clamp, 1, formula::Clamp>, MapLine<MapOp::IsZero, 1, formula::IsZero>,
    //
    MapLine<MapOp::AbsGrad, 2, formula::AbsGrad>, MapLine<MapOp::LogGrad, 2, formula::LogGrad>,
    MapLine<MapOp::Log1pGrad, 2, formula::Log1pGrad>, MapLine<MapOp::ExpGrad, 2, formula::ExpGrad>,
    MapLine<MapOp::SqrtGrad, 2, formula::SqrtGrad>, MapLine<MapOp::RsqrtGrad, 2, formula::RsqrtGrad>,
    MapLine<MapOp::ReciprocalGrad, 2, formula::ReciprocalGrad>,
    MapLine<MapOp::SquareGrad, 2, formula::SquareGrad>, MapLine<MapOp::CosGrad, 2, formula::CosGrad>,
    MapLine<MapOp::SinGrad, 2, formula::SinGrad>, MapLine<MapOp::ErfGrad, 2, formula::ErfGrad>,
    MapLine<MapOp::TanhGrad, 2, formula::SlopeOf<Tanh>>, MapLine<MapOp::SigmoidGrad, 2, formula::SigmoidGrad>,
    MapLine<MapOp::ReluGrad, 2, formula::ReluGrad>, MapLine<MapOp::SiluGrad, 2, formula::SiluGrad>,
    MapLine<MapOp::GeluGrad, 2, formula::SlopeOf<Gelu>>,
    MapLine<MapOp::GeluErfGrad, 2, formula::SlopeOf<GeluErf>>,
    MapLine<MapOp::PowerGrad, 2, formula::PowerGrad>, MapLine<MapOp::ClampGrad, 2, formula::ClampGrad>,
    //
    MapLine<MapOp::Add, 2, formula::Add>, MapLine<MapOp::Mul, 2, formula::Mul>,
    MapLine<MapOp::Div, 2, formula::Div>, MapLine<MapOp::Minimum, 2, formula::Minimum>,
    MapLine<MapOp::Maximum, 2, formula::Maximum>, MapLine<MapOp::Equal, 2, formula::Equal>,
    MapLine<MapOp::NotEqual, 2, formula::NotEqual>, MapLine<MapOp::Less, 2, formula::Less>,
    MapLine<MapOp::LessEqual, 2, formula::LessEqual>, MapLine<MapOp::Greater, 2, formula::Greater>,
    MapLine<MapOp::GreaterEqual, 2, formula::GreaterEqual>, MapLine<MapOp::Select, 2, formula::Select>,
    MapLine<MapOp::SelectNot, 2, formula::SelectNot>,
    //
    MapLine<MapOp::Where, 3, formula::Where>, MapLine<MapOp::DivGrad, 3, formula::DivGrad>,
    MapLine<MapOp::MinimumGrad, 3, formula::MinimumGrad>,
    MapLine<MapOp::MaximumGrad, 3, formula::MaximumGrad>>;
static_assert(MapList::kCount == kMapOps && MapList::follows_map_op(),
              "the list of formulas must have one line for each MapOp, in its order");

}  // namespace
}  // namespace trifold::cpu
