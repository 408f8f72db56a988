// Entries of the CUDA table: update rules and sums of squares by chunk.
#include "ops/cuda/entries.h"
#include "ops/cuda/entries_support.h"

namespace trifold::cuda {

using cpu::copy_of;
using cpu::late;
using cpu::LateRule;

void chunk_squares(Stream& stream, Tensor partials, Tensor x) {
  dispatch_wide_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "chunk_squares",
            [out = partials.as<double>(), in = x.as<T>(), n = x.elements()](CudaStream on) {
              chunk_squares<T>(on, out, in, n);
            });
  });
}

void exact_sum(Stream& stream, Tensor limbs, Tensor x) {
  enqueue_with_scratch(stream, "exact_sum", kExactScratch,
                       [out = limbs.as<int64_t>(), in = x.as<double>(), n = x.elements()](
                           CudaStream on, void* scratch) { exact_sum(on, scratch, out, in, n); });
}

void adamw(Stream& stream, Tensor p, Tensor copy, Tensor m, Tensor v, Tensor g, const AdamW& rule) {
  const LateRule<cpu::AdamWRule> folded = late("adamw", rule);
  dispatch_wide_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "adamw",
            [folded, weights = p.as<T>(), also = copy_of("adamw", p, copy), first = m.as<T>(),
             second = v.as<T>(), grad = g.as<T>(), n = p.elements()](CudaStream on) {
              adamw<T>(on, weights, also, first, second, grad, n, folded);
            });
  });
}

void sgd(Stream& stream, Tensor p, Tensor copy, Tensor b, Tensor g, const Sgd& rule) {
  const bool has_momentum = rule.momentum != 0;
  const LateRule<cpu::SgdRule> folded = late("sgd", rule);
  dispatch_wide_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    T* velocity = has_momentum ? b.as<T>() : nullptr;
    enqueue(stream, "sgd",
            [folded, velocity, weights = p.as<T>(), also = copy_of("sgd", p, copy), grad = g.as<T>(),
             n = p.elements()](CudaStream on) { sgd<T>(on, weights, also, velocity, grad, n, folded); });
  });
}

void adagrad(Stream& stream, Tensor p, Tensor copy, Tensor s, Tensor g, const Adagrad& rule) {
  const LateRule<cpu::AdagradRule> folded = late("adagrad", rule);
  dispatch_wide_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(
        stream, "adagrad",
        [folded, weights = p.as<T>(), also = copy_of("adagrad", p, copy), sums = s.as<T>(), grad = g.as<T>(),
         n = p.elements()](CudaStream on) { adagrad<T>(on, weights, also, sums, grad, n, folded); });
  });
}

void round_randomly(Stream& stream, Tensor y, Tensor x, const RandomRounding& which) {
  cpu::DropRule words;
  words.key_lo = which.key.lo;
  words.key_hi = which.key.hi;
  const cpu::RandomRoundingRows rows{which.begin, which.width, which.stride, which.first};
  if (y.dtype == DType::U8) {
    enqueue(stream, "round_randomly",
            [=, out = y.as<uint8_t>(), in = x.as<float>(), n = y.elements(),
             is_signed = which.format == SmallFloat::Signed](CudaStream on) {
              round_to_small(on, out, in, n, rows, words, is_signed);
            });
    return;
  }
  enqueue(stream, "round_randomly",
          [=, out = y.as<Bfloat16>(), in = x.as<float>(), n = y.elements()](CudaStream on) {
            round_randomly(on, out, in, n, rows, words);
          });
}

void widen_small(Stream& stream, Tensor y, Tensor x, SmallFloat format) {
  enqueue(
      stream, "widen_small",
      [out = y.as<float>(), in = x.as<uint8_t>(), n = y.elements(),
       is_signed = format == SmallFloat::Signed](CudaStream on) { widen_small(on, out, in, n, is_signed); });
}

void lamb_moments(Stream& stream, Tensor p_squares, Tensor u_squares, Tensor m, Tensor v, Tensor p, Tensor g,
                  const Lamb& rule) {
  const int64_t n = p.elements();
  const LateRule<cpu::LambRule> folded = late("lamb_moments", rule);
  dispatch_wide_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "lamb_moments",
            [=, of_weight = p_squares.as<double>(), of_direction = u_squares.as<double>(), first = m.as<T>(),
             second = v.as<T>(), weights = p.as<T>(), grad = g.as<T>()](CudaStream on) {
              lamb_moments<T>(on, of_weight, of_direction, first, second, weights, grad, n, folded);
            });
  });
}

void lamb(Stream& stream, Tensor p, Tensor copy, Tensor m, Tensor v, const Lamb& rule) {
  const LateRule<cpu::LambRule> folded = late("lamb", rule);
  dispatch_wide_float(p.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(
        stream, "lamb",
        [folded, weights = p.as<T>(), also = copy_of("lamb", p, copy), first = m.as<T>(), second = v.as<T>(),
         n = p.elements()](CudaStream on) { lamb<T>(on, weights, also, first, second, n, folded); });
  });
}

void add_optimizer(OpTable& ops) {
  ops.chunk_squares = chunk_squares;
  ops.exact_sum = exact_sum;
  ops.adamw = adamw;
  ops.sgd = sgd;
  ops.adagrad = adagrad;
  ops.round_randomly = round_randomly;
  ops.widen_small = widen_small;
  ops.lamb_moments = lamb_moments;
  ops.lamb = lamb;
}

}  // namespace trifold::cuda
