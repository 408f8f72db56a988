// Cases of sums and of update rules.
#include <cmath>

#include "conformance/op_table.h"
#include "core/exact_digits.h"

namespace trifold::conformance {

namespace {

// Calls update(p, copy, rule) for every type of copy that weights of the run's type can have: with the rule,
// and with one of another step whose numbers are those of the rule.
template <class Rule>
void with_copies(OpRun& run, int64_t n, const Rule& rule,
                 const std::function<void(Tensor p, Tensor copy, const Rule& rule)>& update) {
  const Values p = normal(n, 11);
  const RuleNumbers numbers = numbers_of(rule);
  Rule late = rule;
  late.lr = 100;
  late.grad_scale = -3;
  late.numbers = run.in(DType::F64, {static_cast<int64_t>(kRuleNumbers)}, {numbers.begin(), numbers.end()});
  update(run.out({n}, p), {}, late);
  update(run.out({n}, p), {}, rule);
  update(run.out({n}, p), run.out({n}), late);
  if (run.rounded() != DType::F32) return;
  // The reference, in f64, has copies in f64.
  for (DType narrow : {DType::BF16, DType::F16})
    update(run.out({n}, p), run.out(run.dtype() == DType::F32 ? narrow : DType::F64, {n}), rule);
}

Values squares(Values values) {
  for (double& x : values) x *= x;
  return values;
}

}  // namespace

std::vector<OpCase> sum_op_cases() {
  std::vector<OpCase> cases;
  cases.push_back(
      {"sum_squares", entries(&OpTable::sum_squares), false, 1, each_count([](OpRun& run, int64_t n) {
         run.ops().sum_squares(run.stream(), run.out(DType::F64, {1}, {0.25}), run.in({n}, normal(n, 1)));
       })});
  cases.push_back(
      {"weighted_sum", entries(&OpTable::weighted_sum), true, 1, each_count([](OpRun& run, int64_t n) {
         run.ops().weighted_sum(run.stream(), run.out(DType::F64, {1}, {0.25}), run.in({n}, normal(n, 1)),
                                run.in(DType::F32, {n}, whole(n, 2, 9)));
       })});
  // Of f32 the same bits as everywhere; f64 is squared with a fused multiply-add or without.
  cases.push_back(
      {"chunk_squares", entries(&OpTable::chunk_squares), true, 1, each_count([](OpRun& run, int64_t n) {
         const Shape chunks = {(n + kNormChunk - 1) / kNormChunk};
         const Tensor partials =
             run.dtype() == DType::F32 ? run.exact(DType::F64, chunks) : run.out(DType::F64, chunks);
         run.ops().chunk_squares(run.stream(), partials, run.in({n}, normal(n, 1)));
       })});
  cases.push_back({"exact_sum", entries(&OpTable::exact_sum), true, 1, each_count([](OpRun& run, int64_t n) {
                     // Numbers of all sizes, then such as are mostly alike; and what is not finite.
                     Values x = normal(n, 1);
                     for (size_t i = 0; i < x.size(); ++i)
                       if (i % 3 == 0 && i < 200) x[i] *= std::ldexp(1, static_cast<int>(i % 61) - 30);
                     if (n > 5) x[5] = -0.0;
                     if (n > 40) x[40] = HUGE_VAL;
                     run.ops().exact_sum(run.stream(),
                                         run.exact(DType::I64, {kExactLimbs}, Values(kExactLimbs, 3.0)),
                                         run.in(DType::F64, {n}, x));
                   })});
  return cases;
}

std::vector<OpCase> update_op_cases() {
  std::vector<OpCase> cases;
  cases.push_back({"adamw", entries(&OpTable::adamw), true, 1, each_count([](OpRun& run, int64_t n) {
                     const AdamW how{.lr = 0.01, .weight_decay = 0.1, .step = 3, .grad_scale = 0.5};
                     with_copies<AdamW>(run, n, how, [&](Tensor p, Tensor copy, const AdamW& rule) {
                       run.ops().adamw(run.stream(), p, copy, run.out({n}, normal(n, 1)),
                                       run.out({n}, squares(normal(n, 2))), run.in({n}, normal(n, 3)), rule);
                     });
                   })});
  cases.push_back({"sgd", entries(&OpTable::sgd), true, 1, each_count([](OpRun& run, int64_t n) {
                     Sgd how{.lr = 0.1, .weight_decay = 0.1, .grad_scale = 0.5};
                     with_copies<Sgd>(run, n, how, [&](Tensor p, Tensor copy, const Sgd& rule) {
                       run.ops().sgd(run.stream(), p, copy, run.out({n}, normal(n, 1)),
                                     run.in({n}, normal(n, 3)), rule);
                     });
                     how.momentum = 0;
                     with_copies<Sgd>(run, n, how, [&](Tensor p, Tensor copy, const Sgd& rule) {
                       run.ops().sgd(run.stream(), p, copy, {}, run.in({n}, normal(n, 3)), rule);
                     });
                   })});
  for (const SmallFloat format : {SmallFloat::Signed, SmallFloat::Positive})
    cases.push_back({"numbers of 8 bits", entries(&OpTable::round_randomly, &OpTable::widen_small), true, 1,
                     each_count([format](OpRun& run, int64_t n) {
                       Values x = normal(n, 1);
                       for (size_t i = 0; i < x.size(); ++i)
                         x[i] = std::ldexp(x[i], -static_cast<int>(i % 64));
                       const RandomRounding which{philox_key(3, "moment"), 40, 7, 21, 3, format};
                       const Tensor codes = run.exact(DType::U8, {n});
                       run.ops().round_randomly(run.stream(), codes, run.in(DType::F32, {n}, x), which);
                       run.ops().widen_small(run.stream(), run.exact(DType::F32, {n}), codes, format);
                     })});
  // The same bits everywhere: the rows of a matrix whose columns are cut, from within a row on.
  cases.push_back(
      {"round_randomly", entries(&OpTable::round_randomly), true, 1, each_count([](OpRun& run, int64_t n) {
         const RandomRounding which{philox_key(3, "moment"), 40, 7, 21, 3};
         run.ops().round_randomly(run.stream(), run.exact(DType::BF16, {n}),
                                  run.in(DType::F32, {n}, normal(n, 1)), which);
       })});
  cases.push_back(
      {"dequantize", entries(&OpTable::dequantize), false, 1, each_count([](OpRun& run, int64_t n) {
         for (const QuantizedType type : {QuantizedType::Nf4, QuantizedType::Int8})
           for (const bool along_columns : {false, true}) {
             const QuantizedForm form{type, 132, (n % 200) + 1, 66, along_columns};
             Values stored(static_cast<size_t>(form.bytes()));
             const PhiloxKey key = philox_key(5, "codes");
             for (size_t i = 0; i < stored.size(); ++i) stored[i] = philox_word(key, i) % 255;
             // Scales between 1 and 2.
             for (auto i = static_cast<size_t>(form.scales_at() + 1); i < stored.size(); i += 2)
               stored[i] = 0x3f, stored[i - 1] = 128 + std::fmod(stored[i - 1], 128.0);
             run.ops().dequantize(run.stream(), run.exact(run.dtype(), {form.rows, form.columns}),
                                  run.in(DType::U8, {form.bytes()}, stored), form);
           }
       })});
  cases.push_back({"adagrad", entries(&OpTable::adagrad), true, 1, each_count([](OpRun& run, int64_t n) {
                     const Adagrad how{.lr = 0.1, .eps = 1e-3, .weight_decay = 0.1, .grad_scale = 0.5};
                     with_copies<Adagrad>(run, n, how, [&](Tensor p, Tensor copy, const Adagrad& rule) {
                       run.ops().adagrad(run.stream(), p, copy, run.out({n}, squares(normal(n, 1))),
                                         run.in({n}, normal(n, 3)), rule);
                     });
                   })});
  cases.push_back(
      {"lamb", entries(&OpTable::lamb_moments, &OpTable::lamb), true, 2,
       each_count([](OpRun& run, int64_t n) {
         const Lamb how{.lr = 0.01, .weight_decay = 0.1, .step = 3, .grad_scale = 0.5, .trust_ratio = 0.75};
         const Shape chunks = {(n + kNormChunk - 1) / kNormChunk};
         with_copies<Lamb>(run, n, how, [&](Tensor p, Tensor copy, const Lamb& rule) {
           const Tensor m = run.out({n}, normal(n, 1));
           Values second = squares(normal(n, 2));
           for (double& x : second) x += 0.1;
           const Tensor v = run.out({n}, second);
           // In f32 the directions themselves are rounded before they are squared.
           run.ops().lamb_moments(run.stream(), run.in(DType::F64, chunks, {}),
                                  run.in(DType::F64, chunks, {}), m, v, p, run.in({n}, normal(n, 3)), rule);
           run.ops().lamb(run.stream(), p, copy, m, v, rule);
         });
       })});
  cases.push_back(
      {"lamb's squares", entries(&OpTable::lamb_moments), true, 1, each_count([](OpRun& run, int64_t n) {
         const Lamb rule{.lr = 0.01, .weight_decay = 0.1, .step = 3, .grad_scale = 0.5};
         const Shape chunks = {(n + kNormChunk - 1) / kNormChunk};
         Values second = squares(normal(n, 2));
         for (double& x : second) x += 0.1;
         // Read back in the run's type, so that its tolerance holds.
         const Tensor of_p = run.in(DType::F64, chunks, {});
         const Tensor of_u = run.in(DType::F64, chunks, {});
         run.ops().lamb_moments(run.stream(), of_p, of_u, run.out({n}, normal(n, 1)), run.out({n}, second),
                                run.in({n}, normal(n, 4)), run.in({n}, normal(n, 3)), rule);
         const Tensor both = run.out(DType::F32, {2 * chunks[0]});
         run.ops().convert(run.stream(), both.flat(0, chunks[0]), of_p);
         run.ops().convert(run.stream(), both.flat(chunks[0], 2 * chunks[0]), of_u);
       })});
  return cases;
}

}  // namespace trifold::conformance
