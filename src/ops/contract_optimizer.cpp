// The contract of sums to a scalar, sums of squares by chunk, and update rules.
#include "core/exact_digits.h"
#include "ops/contract.h"
#include "ops/expect.h"

namespace trifold::contract {

void sum_squares(const Tensor& total, const Tensor& /*x*/) {
  expect("sum_squares", "total", total, DType::F64, 1);
}

void weighted_sum(const Tensor& total, const Tensor& x, const Tensor& weight) {
  expect("weighted_sum", "total", total, DType::F64, 1);
  expect("weighted_sum", "weight", weight, DType::F32, x.elements());
}

namespace {

int64_t norm_chunks(const Tensor& x) { return (x.elements() + kNormChunk - 1) / kNormChunk; }

}  // namespace

void chunk_squares(const Tensor& partials, const Tensor& x) {
  expect("chunk_squares", "partials", partials, DType::F64, norm_chunks(x));
}

void exact_sum(const Tensor& limbs, const Tensor& x) {
  expect("exact_sum", "limbs", limbs, DType::I64, kExactLimbs);
  expect("exact_sum", "x", x, DType::F64, x.elements());
  check(x.elements() <= kMostExactAdditions,
        "exact_sum: {} elements are more than the {} that one call may add", x.elements(),
        kMostExactAdditions);
}

void adamw(const Tensor& p, const Tensor& /*copy*/, const Tensor& m, const Tensor& v, const Tensor& g,
           const AdamW& /*rule*/) {
  expect("adamw", "m", m, p.dtype, p.elements());
  expect("adamw", "v", v, p.dtype, p.elements());
  expect("adamw", "g", g, p.dtype, p.elements());
}

void sgd(const Tensor& p, const Tensor& /*copy*/, const Tensor& b, const Tensor& g, const Sgd& rule) {
  if (rule.momentum != 0) expect("sgd", "b", b, p.dtype, p.elements());
  expect("sgd", "g", g, p.dtype, p.elements());
}

void adagrad(const Tensor& p, const Tensor& /*copy*/, const Tensor& s, const Tensor& g,
             const Adagrad& /*rule*/) {
  expect("adagrad", "s", s, p.dtype, p.elements());
  expect("adagrad", "g", g, p.dtype, p.elements());
}

void round_randomly(const Tensor& y, const Tensor& x, const RandomRounding& which) {
  expect("round_randomly", "x", x, DType::F32, y.elements());
  if (y.dtype != DType::U8) expect("round_randomly", "y", y, DType::BF16, x.elements());
  check(which.width >= 1 && which.stride >= which.width && which.first >= 0 && which.begin >= 0,
        "round_randomly: rows of {} elements that begin {} apart, from element {} of {} on, are no rows",
        which.width, which.stride, which.first, which.begin);
}

void widen_small(const Tensor& y, const Tensor& x, SmallFloat /*format*/) {
  expect("widen_small", "y", y, DType::F32, x.elements());
  expect("widen_small", "x", x, DType::U8, y.elements());
}

void lamb_moments(const Tensor& p_squares, const Tensor& u_squares, const Tensor& m, const Tensor& v,
                  const Tensor& p, const Tensor& g, const Lamb& /*rule*/) {
  expect("lamb_moments", "p_squares", p_squares, DType::F64, norm_chunks(p));
  expect("lamb_moments", "u_squares", u_squares, DType::F64, norm_chunks(p));
  expect("lamb_moments", "m", m, p.dtype, p.elements());
  expect("lamb_moments", "v", v, p.dtype, p.elements());
  expect("lamb_moments", "g", g, p.dtype, p.elements());
}

void lamb(const Tensor& p, const Tensor& /*copy*/, const Tensor& m, const Tensor& v, const Lamb& /*rule*/) {
  expect("lamb", "m", m, p.dtype, p.elements());
  expect("lamb", "v", v, p.dtype, p.elements());
}

void add_optimizer(OpTable& checks) {
  bind<&OpTable::sum_squares, sum_squares>(checks);
  bind<&OpTable::weighted_sum, weighted_sum>(checks);
  bind<&OpTable::chunk_squares, chunk_squares>(checks);
  bind<&OpTable::exact_sum, exact_sum>(checks);
  bind<&OpTable::adamw, adamw>(checks);
  bind<&OpTable::sgd, sgd>(checks);
  bind<&OpTable::adagrad, adagrad>(checks);
  bind<&OpTable::round_randomly, round_randomly>(checks);
  bind<&OpTable::widen_small, widen_small>(checks);
  bind<&OpTable::lamb_moments, lamb_moments>(checks);
  bind<&OpTable::lamb, lamb>(checks);
}

}  // namespace trifold::contract
