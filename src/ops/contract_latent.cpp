// The contract of the operations of multi-head latent attention.
#include <limits>

#include "ops/contract.h"
#include "ops/expect.h"
#include "ops/kernels.h"

namespace trifold::contract {

namespace {

void expect_latent(const char* op, const Tensor& packed, const Tensor& q, const Tensor& kv, const Tensor& key,
                   const Tensor& positions, const LatentHeads& how) {
  const int64_t rows = positions.elements();
  const int64_t turned = how.turned();
  check(turned >= 2 && turned <= 2 * cpu::kRotaryPairs,
        "{}: {} rotated elements of a head: give an even number from 2 to {}", op, turned,
        2 * cpu::kRotaryPairs);
  check(how.heads >= 1 && how.plain >= 0 && how.value >= 1 && how.width >= how.plain + turned &&
            how.width >= how.value,
        "{}: {} heads of {} plain + {} rotated elements, with values of {}, do not fit in heads of width {}",
        op, how.heads, how.plain, turned, how.value, how.width);
  check(3 * how.heads * how.width <= std::numeric_limits<int32_t>::max(),
        "{}: {} heads of width {}: a packed row has more than 2^31 - 1 elements", op, how.heads, how.width);
  expect(op, "positions", positions, DType::I32, rows);
  expect_float(op, "packed", packed);
  expect(op, "packed", packed, packed.dtype, rows * 3 * how.heads * how.width);
  expect(op, "q", q, packed.dtype, rows * how.heads * (how.plain + turned));
  expect(op, "kv", kv, packed.dtype, rows * how.heads * (how.plain + how.value));
  expect(op, "key", key, packed.dtype, rows * turned);
}

}  // namespace

void latent_heads(const Tensor& packed, const Tensor& q, const Tensor& kv, const Tensor& key,
                  const Tensor& positions, const LatentHeads& how) {
  expect_latent("latent_heads", packed, q, kv, key, positions, how);
}

void latent_heads_backward(const Tensor& dq, const Tensor& dkv, const Tensor& dkey, const Tensor& dpacked,
                           const Tensor& positions, const LatentHeads& how) {
  expect_latent("latent_heads_backward", dpacked, dq, dkv, dkey, positions, how);
}

void fit_columns(const Tensor& y, const Tensor& x) {
  expect_matrix("fit_columns", "y", y);
  expect_matrix("fit_columns", "x", x);
  expect("fit_columns", "x", x, y.dtype, y.row_count() * x.last_dim());
}

void add_latent(OpTable& checks) {
  bind<&OpTable::latent_heads, latent_heads>(checks);
  bind<&OpTable::latent_heads_backward, latent_heads_backward>(checks);
  bind<&OpTable::fit_columns, fit_columns>(checks);
}

}  // namespace trifold::contract
