// Comparisons, logic, and choices between elements.
#include <cmath>
#include <type_traits>

#include "graph/host/map.h"
#include "graph/host/rows.h"

namespace trifold::graph {

namespace {

// Whether a relation holds between elements, in the type that combines both.
template <auto F>
Array compare(const Call& call) {
  const HostOperand a = call.operand(0), b = call.operand(1);
  const ElementType type = combined_type(a, b), computed = computed_type(type);
  const HostOperand x = a.as(type).as(computed), y = b.as(type).as(computed);
  Array to = make_array(ElementType::Bool, broadcast_dims(x.array().dims, y.array().dims));
  dispatch_computed(computed, [&]<class T>(T) { map_pairs<bool, T>(x.array(), y.array(), to, F); });
  return to;
}

constexpr auto kEqual = []<class T>(T a, T b) { return a == b; };
constexpr auto kNotEqual = []<class T>(T a, T b) { return a != b; };
constexpr auto kLess = []<class T>(T a, T b) { return a < b; };
constexpr auto kLessOrEqual = []<class T>(T a, T b) { return a <= b; };
constexpr auto kGreater = []<class T>(T a, T b) { return a > b; };
constexpr auto kGreaterOrEqual = []<class T>(T a, T b) { return a >= b; };

// Both operands as bools or as i64: logical operations, and those on bits.
template <auto F>
Array combine(const Call& call, ElementType computed) {
  const HostOperand x = call.operand(0).as(computed), y = call.operand(1).as(computed);
  Array to = make_array(computed, broadcast_dims(x.array().dims, y.array().dims));
  if (computed == ElementType::Bool)
    map_pairs<bool, bool>(x.array(), y.array(), to, F);
  else
    map_pairs<int64_t, int64_t>(x.array(), y.array(), to, F);
  return converted(std::move(to), call.type());
}

// `&` and `|` do not branch, as `&&` and `||` would.
constexpr auto kAnd = []<class T>(T a, T b) { return static_cast<T>(a & b); };
constexpr auto kOr = []<class T>(T a, T b) { return static_cast<T>(a | b); };

template <auto F>
Array logical(const Call& call) {
  return combine<F>(call, ElementType::Bool);
}

template <auto F>
Array bitwise(const Call& call) {
  if (is_float(call.type())) bad_input("bits of {} cannot be combined", name_of(call.type()));
  return combine<F>(call, computed_type(call.type()));
}

Array logical_not(const Call& call) {
  const HostOperand a = call.operand(0).as(ElementType::Bool);
  Array to = make_array(ElementType::Bool, a.array().dims);
  map_elements<bool, bool>(a.array(), to, [](bool p) { return !p; });
  return to;
}

Array bitwise_not(const Call& call) {
  if (call.type() == ElementType::Bool) return logical_not(call);
  if (is_float(call.type())) bad_input("bits of {} cannot be inverted", name_of(call.type()));
  const HostOperand a = call.operand(0).as(ElementType::I64);
  Array to = make_array(ElementType::I64, a.array().dims);
  map_elements<int64_t, int64_t>(a.array(), to, [](int64_t p) { return ~p; });
  return converted(std::move(to), call.type());
}

template <auto F>
Array test_float(const Call& call) {
  const HostOperand a = call.operand(0).as(computed_type(call.operand(0).array().type));
  Array to = make_array(ElementType::Bool, a.array().dims);
  dispatch_computed(a.array().type, [&]<class T>(T) {
    map_elements<bool, T>(a.array(), to, [](T p) {
      if constexpr (std::is_floating_point_v<T>)
        return F(p);
      else
        return false;
    });
  });
  return to;
}

constexpr auto kIsNan = [](auto a) { return std::isnan(a); };
constexpr auto kIsInfinite = [](auto a) { return std::isinf(a); };

// Elements of `a` where the condition is true, and of `b` elsewhere. Only sizes of elements matter.
Array choose(const Call& call, const HostOperand& condition, const HostOperand& a, const HostOperand& b) {
  const HostOperand mask = condition.as(ElementType::Bool), x = a.as(call.type()), y = b.as(call.type());
  const Dims dims = broadcast_dims(mask.array().dims, broadcast_dims(x.array().dims, y.array().dims));
  Array to = make_array(call.type(), dims);
  const bool* chosen = mask.array().as<bool>();
  dispatch_size(call.type(), [&]<class T>(T) {
    const T *p = x.array().as<T>(), *q = y.array().as<T>();
    T* out = to.as<T>();
    each_run<3>(dims,
                {broadcast_strides(mask.array().dims, dims), broadcast_strides(x.array().dims, dims),
                 broadcast_strides(y.array().dims, dims)},
                [&](const auto& at, int64_t count, const auto& step) {
                  const bool* c = chosen + at[0];
                  const T *u = p + at[1], *v = q + at[2];
                  if (step[0] == 1 && step[1] == 0 && step[2] == 0) {
                    const T yes = *u, no = *v;
                    for (int64_t i = 0; i < count; ++i) out[i] = c[i] ? yes : no;
                  } else if (step[0] == 1 && step[1] == 0 && step[2] == 1) {
                    const T yes = *u;
                    for (int64_t i = 0; i < count; ++i) out[i] = c[i] ? yes : v[i];
                  } else if (step[0] == 1 && step[1] == 1 && step[2] == 1) {
                    for (int64_t i = 0; i < count; ++i) out[i] = c[i] ? u[i] : v[i];
                  } else {
                    for (int64_t i = 0; i < count; ++i)
                      out[i] = c[i * step[0]] ? u[i * step[1]] : v[i * step[2]];
                  }
                  out += count;
                });
  });
  return to;
}

Array where(const Call& call) { return choose(call, call.operand(0), call.operand(1), call.operand(2)); }

Array masked_fill(const Call& call) {
  return choose(call, call.operand(1), call.operand(2), call.operand(0));
}

// The second argument, repeated to the shape of the first.
Array fill(const Call& call) {
  return broadcast_to(call.operand(1).as(call.type()).array(), call.tensor(0).dims);
}

}  // namespace

void add_comparison_rows(std::vector<HostRow>& rows) {
  const std::vector<HostRow> own{
      {"eq.Tensor", compare<kEqual>},
      {"eq.Scalar", compare<kEqual>},
      {"ne.Tensor", compare<kNotEqual>},
      {"ne.Scalar", compare<kNotEqual>},
      {"lt.Tensor", compare<kLess>},
      {"lt.Scalar", compare<kLess>},
      {"le.Tensor", compare<kLessOrEqual>},
      {"le.Scalar", compare<kLessOrEqual>},
      {"gt.Tensor", compare<kGreater>},
      {"gt.Scalar", compare<kGreater>},
      {"ge.Tensor", compare<kGreaterOrEqual>},
      {"ge.Scalar", compare<kGreaterOrEqual>},
      {"__and__.Tensor", bitwise<kAnd>},
      {"__and__.Scalar", bitwise<kAnd>},
      {"__or__.Tensor", bitwise<kOr>},
      {"__or__.Scalar", bitwise<kOr>},
      {"bitwise_and.Tensor", bitwise<kAnd>},
      {"bitwise_or.Tensor", bitwise<kOr>},
      {"bitwise_not", bitwise_not},
      {"logical_and", logical<kAnd>},
      {"logical_or", logical<kOr>},
      {"logical_not", logical_not},
      {"isnan", test_float<kIsNan>},
      {"isinf", test_float<kIsInfinite>},
      {"where.self", where},
      {"where.ScalarOther", where},
      {"where.ScalarSelf", where},
      {"where.Scalar", where},
      {"masked_fill.Scalar", masked_fill},
      {"masked_fill.Tensor", masked_fill},
      {"copy", fill},
      {"fill.Scalar", fill},
      {"fill.Tensor", fill},
  };
  rows.insert(rows.end(), own.begin(), own.end());
}

}  // namespace trifold::graph
