// The contract of the operations of multi-head latent attention.
#include <limits>

#include "ops/contract.h"
#include "ops/expect.h"
#include "ops/kernels.h"

namespace trifold::contract {

namespace {

void expect_latent(const char* op, const Tensor& packed, const Tensor& q, const Tensor& kv, const Tensor& key,
                   const Tensor& positions, const LatentHeads& latent) {
  const int64_t rows = positions.elements();
  const int64_t turned = latent.turned();
  check(turned >= 2 && turned <= 2 * cpu::kRotaryPairs,
        "{}: {} rotated elements of a head: give an even number from 2 to {}", op, turned,
        2 * cpu::kRotaryPairs);
  check(latent.heads >= 1 && latent.plain >= 0 && latent.value >= 1 &&
            latent.width >= latent.plain + turned && latent.width >= latent.value,
        "{}: {} heads of {} plain + {} rotated elements, with values of {}, do not fit in heads of width {}",
        op, latent.heads, latent.plain, turned, latent.value, latent.width);
  check(3 * latent.heads * latent.width <= std::numeric_limits<int32_t>::max(),
        "{}: {} heads of width {}: a packed row has more than 2^31 - 1 elements", op, latent.heads,
        latent.width);
  expect(op, "positions", positions, DType::I32, rows);
  expect_float(op, "packed", packed);
  expect(op, "packed", packed, packed.dtype, rows * 3 * latent.heads * latent.width);
  expect(op, "q", q, packed.dtype, rows * latent.heads * (latent.plain + turned));
  expect(op, "kv", kv, packed.dtype, rows * latent.heads * (latent.plain + latent.value));
  expect(op, "key", key, packed.dtype, rows * turned);
}

}  // namespace

void latent_heads(const Tensor& packed, const Tensor& q, const Tensor& kv, const Tensor& key,
                  const Tensor& positions, const LatentHeads& latent) {
  expect_latent("latent_heads", packed, q, kv, key, positions, latent);
}

void latent_heads_backward(const Tensor& dq, const Tensor& dkv, const Tensor& dkey, const Tensor& dpacked,
                           const Tensor& positions, const LatentHeads& latent) {
  expect_latent("latent_heads_backward", dpacked, dq, dkv, dkey, positions, latent);
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
