// Cases of operations for multi-head latent attention.
#include <cmath>

#include "conformance/op_table.h"

namespace trifold::conformance {

namespace {

// Heads of plain + 2 pairs numbers, values of others, in wider ones.
void latent_case(OpRun& run, int64_t heads, int64_t plain, int64_t pairs, int64_t value, int64_t width) {
  constexpr int64_t kRows = 5;
  Values frequencies(static_cast<size_t>(pairs));
  for (size_t i = 0; i < frequencies.size(); ++i)
    frequencies[i] = std::pow(10000.0, -static_cast<double>(i) / static_cast<double>(pairs));
  const LatentHeads how{run.keep(frequencies), heads, plain, value, width, 1.25};
  const Tensor positions = run.in(DType::I32, {kRows}, whole(kRows, 5, 4000));
  const Shape packed{kRows, 3 * heads * width}, q{kRows, heads * (plain + 2 * pairs)};
  const Shape kv{kRows, heads * (plain + value)}, key{kRows, 2 * pairs};
  run.ops().latent_heads(run.stream(), run.out(packed), run.in(q, normal(q.elements(), 1)),
                         run.in(kv, normal(kv.elements(), 2)), run.in(key, normal(key.elements(), 3)),
                         positions, how);
  run.ops().latent_heads_backward(run.stream(), run.out(q), run.out(kv), run.out(key),
                                  run.in(packed, normal(packed.elements(), 4)), positions, how);
  const Tensor x = run.in({kRows * heads, width}, normal(kRows * heads * width, 6));
  run.ops().fit_columns(run.stream(), run.exact(run.dtype(), {kRows * heads, value}), x);
  run.ops().fit_columns(run.stream(), run.exact(run.dtype(), {kRows * heads, width + 3}), x);
}

}  // namespace

std::vector<OpCase> latent_op_cases() {
  return {{"latent heads",
           entries(&OpTable::latent_heads, &OpTable::latent_heads_backward, &OpTable::fit_columns), false, 4,
           [](OpRun& run) {
             latent_case(run, 3, 16, 4, 16, 24);
             latent_case(run, 2, 5, 3, 13, 13);
             latent_case(run, 1, 0, 70, 7, 141);
           }}};
}

}  // namespace trifold::conformance
