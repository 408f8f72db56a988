// Each result has the type that the graph gives it. Operands are converted to that type first, and computed as f64,
// f32, i64 or bool; integers wrap.
#include <cmath>
#include <numbers>
#include <type_traits>

#include "core/error.h"
#include "graph/host/map.h"
#include "graph/host/rows.h"

namespace trifold::graph {

namespace {

// Arithmetic of one type; that of i64 is computed without a sign, so that an overflow is defined.
template <class T>
T plus(T a, T b) {
  if constexpr (std::is_same_v<T, int64_t>)
    return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return static_cast<T>(a + b);
}
template <class T>
T minus(T a, T b) {
  if constexpr (std::is_same_v<T, int64_t>)
    return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
  else
    return static_cast<T>(a - b);
}
template <class T>
T times(T a, T b) {
  if constexpr (std::is_same_v<T, int64_t>)
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return static_cast<T>(a * b);
}
template <class T>
bool is_nan(T a) {
  if constexpr (std::is_floating_point_v<T>)
    return std::isnan(a);
  else
    return false;
}
// A NaN in either is the result.
template <class T>
T smaller(T a, T b) {
  return is_nan(a) || (!is_nan(b) && a < b) ? a : b;
}
template <class T>
T larger(T a, T b) {
  return is_nan(a) || (!is_nan(b) && a > b) ? a : b;
}

// The result of f on elements of the type in which the output is computed.
template <class F>
Array of_pairs(const Call& call, const HostOperand& a, const HostOperand& b, F f) {
  const ElementType type = call.type(), computed = computed_type(type);
  const HostOperand x = a.as(type).as(computed), y = b.as(type).as(computed);
  Array to = make_array(computed, broadcast_dims(x.array().dims, y.array().dims));
  dispatch_computed(computed, [&]<class T>(T) {
    map_pairs<T, T>(x.array(), y.array(), to, [f](T p, T q) -> T { return f(p, q); });
  });
  return converted(std::move(to), type);
}

template <class F>
Array of_elements(const Call& call, const HostOperand& a, F f) {
  const ElementType type = call.type(), computed = computed_type(type);
  const HostOperand x = a.as(type).as(computed);
  Array to = make_array(computed, x.array().dims);
  dispatch_computed(computed, [&]<class T>(T) {
    map_elements<T, T>(x.array(), to, [f](T p) -> T { return static_cast<T>(f(p)); });
  });
  return converted(std::move(to), type);
}

void require_float(const Call& call) {
  if (!is_float(call.type()))
    bad_input("its result is of type {}, but must be a float", name_of(call.type()));
}

// Applies a function that only floats have to the first argument.
template <class F>
Array of_floats(const Call& call, F f) {
  require_float(call);
  return of_elements(call, call.operand(0), [f]<class T>(T a) {
    if constexpr (std::is_floating_point_v<T>)
      return f(a);
    else
      return a;
  });
}

// The number of argument i if the operation has it, otherwise 1.
HostOperand factor(const Call& call, size_t i) {
  return i < call.arguments() ? HostOperand(call.number(i), true)
                              : HostOperand(number_array(int64_t{1}), true);
}

// b * alpha, not computed if alpha is 1.
HostOperand scaled(const Call& call, HostOperand b, size_t alpha) {
  HostOperand by = factor(call, alpha);
  if (*converted(by.array(), ElementType::F64).as<double>() == 1) return b;
  return {of_pairs(call, b, by, []<class T>(T p, T q) { return times(p, q); }), false};
}

Array add(const Call& call) {
  return of_pairs(call, call.operand(0), scaled(call, call.operand(1), 2),
                  []<class T>(T p, T q) { return plus(p, q); });
}

Array sub(const Call& call) {
  return of_pairs(call, call.operand(0), scaled(call, call.operand(1), 2),
                  []<class T>(T p, T q) { return minus(p, q); });
}

Array rsub(const Call& call) {
  return of_pairs(call, call.operand(1), scaled(call, call.operand(0), 2),
                  []<class T>(T p, T q) { return minus(p, q); });
}

Array mul(const Call& call) {
  return of_pairs(call, call.operand(0), call.operand(1), []<class T>(T p, T q) { return times(p, q); });
}

Array div(const Call& call) {
  require_float(call);
  return of_pairs(call, call.operand(0), call.operand(1), []<class T>(T p, T q) {
    if constexpr (std::is_floating_point_v<T>)
      return p / q;
    else
      return p;
  });
}

int64_t whole_power(int64_t base, int64_t exponent) {
  if (exponent < 0) bad_input("an integer cannot be raised to the power {}", exponent);
  int64_t power = 1;
  for (; exponent > 0; exponent >>= 1, base = times(base, base))
    if ((exponent & 1) != 0) power = times(power, base);
  return power;
}

Array power(const Call& call) {
  if (!is_float(call.type())) {
    const int64_t exponent = call.integer(1);
    return of_elements(call, call.operand(0),
                       [exponent](auto a) { return whole_power(static_cast<int64_t>(a), exponent); });
  }
  const double exponent = call.real(1);
  return of_floats(call, [exponent]<class T>(T a) {
    if (exponent == 2) return a * a;
    return exponent == 0.5 ? std::sqrt(a) : std::pow(a, static_cast<T>(exponent));
  });
}

// The base is a number.
Array power_of(const Call& call) {
  require_float(call);
  return of_pairs(call, call.operand(0), call.operand(1), []<class T>(T base, T exponent) -> T {
    if constexpr (std::is_floating_point_v<T>)
      return std::pow(base, exponent);
    else
      return base;
  });
}

// With the sign of the divisor.
Array remainder(const Call& call) {
  return of_pairs(call, call.operand(0), call.operand(1), []<class T>(T a, T by) -> T {
    if constexpr (std::is_floating_point_v<T>) {
      const T rest = std::fmod(a, by);
      return rest != 0 && (rest < 0) != (by < 0) ? rest + by : rest;
    } else {
      if (by == T{}) bad_input("the divisor of a remainder is 0");
      const auto divisor = static_cast<int64_t>(by);
      const int64_t rest = divisor == -1 ? 0 : static_cast<int64_t>(a) % divisor;
      return static_cast<T>(rest != 0 && (rest < 0) != (divisor < 0) ? rest + divisor : rest);
    }
  });
}

Array minimum(const Call& call) {
  return of_pairs(call, call.operand(0), call.operand(1), []<class T>(T p, T q) { return smaller(p, q); });
}

Array maximum(const Call& call) {
  return of_pairs(call, call.operand(0), call.operand(1), []<class T>(T p, T q) { return larger(p, q); });
}

// A NaN stays one.
Array clamp_min(const Call& call) { return maximum(call); }
Array clamp_max(const Call& call) { return minimum(call); }

Array clamp(const Call& call) {
  HostOperand result = call.operand(0);
  if (call.has(1))
    result = {of_pairs(call, result, call.operand(1), []<class T>(T p, T q) { return larger(p, q); }), false};
  if (call.has(2))
    result = {of_pairs(call, result, call.operand(2), []<class T>(T p, T q) { return smaller(p, q); }),
              false};
  return converted(result.array(), call.type());
}

// Rows of functions that integers have too, and of functions of floats only.
template <auto F>
Array each_element(const Call& call) {
  return of_elements(call, call.operand(0), F);
}
template <auto F>
Array each_float(const Call& call) {
  return of_floats(call, F);
}

constexpr auto kNegate = []<class T>(T a) { return minus(T{}, a); };
constexpr auto kAbsolute = []<class T>(T a) { return a < T{} ? minus(T{}, a) : a; };
constexpr auto kSquare = []<class T>(T a) { return times(a, a); };
constexpr auto kRelu = []<class T>(T a) { return larger(a, T{}); };
constexpr auto kLog = []<class T>(T a) { return std::log(a); };
constexpr auto kLog1p = []<class T>(T a) { return std::log1p(a); };
constexpr auto kExp = []<class T>(T a) { return std::exp(a); };
constexpr auto kSqrt = []<class T>(T a) { return std::sqrt(a); };
constexpr auto kSin = []<class T>(T a) { return std::sin(a); };
constexpr auto kCos = []<class T>(T a) { return std::cos(a); };
constexpr auto kErf = []<class T>(T a) { return std::erf(a); };
constexpr auto kTanh = []<class T>(T a) { return std::tanh(a); };
constexpr auto kReciprocal = []<class T>(T a) { return T{1} / a; };
constexpr auto kRsqrt = []<class T>(T a) { return T{1} / std::sqrt(a); };
constexpr auto kSigmoid = []<class T>(T a) { return T{1} / (T{1} + std::exp(-a)); };
constexpr auto kSilu = []<class T>(T a) { return a / (T{1} + std::exp(-a)); };

Array gelu(const Call& call) {
  const bool tanh = call.text(1) == "tanh";
  return of_floats(call, [tanh]<class T>(T x) {
    if (!tanh) return x * (T{1} + std::erf(x * std::numbers::sqrt2_v<T> / 2)) / 2;
    const T scale = static_cast<T>(0.7978845608028654);  // sqrt(2 / pi)
    return x * (T{1} + std::tanh(scale * (x + static_cast<T>(0.044715) * x * x * x))) / 2;
  });
}

Array zero(const Call& call) { return zero_array(call.type(), call.tensor(0).dims); }

// The first argument, converted if the output has another type.
Array same(const Call& call) { return converted(call.tensor(0), call.type()); }

Array dropout(const Call& call) {
  if (call.flag(2) && call.real(1) > 0) bad_input("dropout is random and cannot be prepared");
  return same(call);
}

}  // namespace

void add_elementwise_rows(std::vector<HostRow>& rows) {
  const std::vector<HostRow> own{
      {"add.Tensor", add},
      {"add.Scalar", add},
      {"sub.Tensor", sub},
      {"sub.Scalar", sub},
      {"rsub.Tensor", rsub},
      {"rsub.Scalar", rsub},
      {"mul.Tensor", mul},
      {"mul.Scalar", mul},
      {"div.Tensor", div},
      {"div.Scalar", div},
      {"pow.Tensor_Scalar", power},
      {"pow.Scalar", power_of},
      {"remainder.Scalar", remainder},
      {"minimum", minimum},
      {"min.other", minimum},
      {"maximum", maximum},
      {"max.other", maximum},
      {"clamp", clamp},
      {"clamp_min", clamp_min},
      {"clamp_max", clamp_max},
      {"neg", each_element<kNegate>},
      {"abs", each_element<kAbsolute>},
      {"square", each_element<kSquare>},
      {"relu", each_element<kRelu>},
      {"log", each_float<kLog>},
      {"log1p", each_float<kLog1p>},
      {"exp", each_float<kExp>},
      {"sqrt", each_float<kSqrt>},
      {"sin", each_float<kSin>},
      {"cos", each_float<kCos>},
      {"erf", each_float<kErf>},
      {"tanh", each_float<kTanh>},
      {"reciprocal", each_float<kReciprocal>},
      {"rsqrt", each_float<kRsqrt>},
      {"sigmoid", each_float<kSigmoid>},
      {"silu", each_float<kSilu>},
      {"gelu", gelu},
      {"zero", zero},
      {"to.dtype", same},
      {"detach", same},
      {"dropout", dropout},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace trifold::graph
