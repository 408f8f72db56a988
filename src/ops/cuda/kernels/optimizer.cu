// Update rules: maps over master weights, their state and gradients, with the copy that layers compute in.
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/map.cuh"
#include "ops/kernels/formulas.h"

namespace trifold::cuda {

namespace {

// A rule as functors hold it; its values are read at run time.
template <template <class> class Step, class W, class Rule>
struct Stepped {
  cpu::LateRule<Rule> rule;
  __device__ inline Step<W> step() const { return Step<W>(rule.now()); }
};

// Writes the new weight to p and, if there is a copy, to the copy; the map rounds it to the copy's type.
template <class W>
struct AdamWMap : Stepped<cpu::AdamWStep, W, cpu::AdamWRule> {
  __device__ void operator()(W& p, W& m, W& v, W g) const { p = this->step()(p, m, v, g); }
  __device__ void operator()(W& p, W& m, W& v, W g, W& copy) const {
    copy = this->step()(p, m, v, g);
    p = copy;
  }
};
template <class W>
struct PlainSgdMap : Stepped<cpu::SgdStep, W, cpu::SgdRule> {
  __device__ void operator()(W& p, W g) const { p = this->step()(p, g); }
  __device__ void operator()(W& p, W g, W& copy) const {
    copy = this->step()(p, g);
    p = copy;
  }
};
template <class W>
struct SgdMap : Stepped<cpu::SgdStep, W, cpu::SgdRule> {
  __device__ void operator()(W& p, W& b, W g) const { p = this->step()(p, b, g); }
  __device__ void operator()(W& p, W& b, W g, W& copy) const {
    copy = this->step()(p, b, g);
    p = copy;
  }
};
template <class W>
struct AdagradMap : Stepped<cpu::AdagradStep, W, cpu::AdagradRule> {
  __device__ void operator()(W& p, W& s, W g) const { p = this->step()(p, s, g); }
  __device__ void operator()(W& p, W& s, W g, W& copy) const {
    copy = this->step()(p, s, g);
    p = copy;
  }
};

template <class W>
struct LambStep {
  cpu::LambDirection<W> direction;
  W step_size;
  __device__ explicit LambStep(const cpu::LambRule& rule)
      : direction(rule), step_size(static_cast<W>(rule.step_size)) {}
  __device__ inline W operator()(W p, W m, W v) const { return p - step_size * direction(p, m, v); }
};
template <class W>
struct LambMap : Stepped<LambStep, W, cpu::LambRule> {
  __device__ void operator()(W& p, W m, W v) const { p = this->step()(p, m, v); }
  __device__ void operator()(W& p, W m, W v, W& copy) const {
    copy = this->step()(p, m, v);
    p = copy;
  }
};

// The random word of element `at` of a tensor.
__device__ inline uint32_t word_of(const cpu::RandomRoundingRows& rows, const cpu::DropRule& rule,
                                   int64_t at) {
  const uint64_t element = cpu::global_element(rows, at);
  const cpu::PhiloxWords words = cpu::philox_block(rule.key_lo, rule.key_hi, element / 4);
  const auto which = static_cast<unsigned>(element % 4);
  return which < 2 ? (which == 0 ? words.at[0] : words.at[1]) : (which == 2 ? words.at[2] : words.at[3]);
}

// One element a thread: moments are a small part of a step's traffic.
__global__ void __launch_bounds__(kMapThreads)
    round_randomly_kernel(Bfloat16* y, const float* x, int64_t n, cpu::RandomRoundingRows rows,
                          cpu::DropRule rule) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x;
  if (at < n) y[at].bits = cpu::random_bfloat16_bits(x[at], word_of(rows, rule, at));
}

__global__ void __launch_bounds__(kMapThreads)
    round_to_small_kernel(uint8_t* y, const float* x, int64_t n, cpu::RandomRoundingRows rows,
                          cpu::DropRule rule, bool is_signed) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x;
  if (at < n) y[at] = cpu::random_small_code(x[at], word_of(rows, rule, at), is_signed);
}

__global__ void __launch_bounds__(kMapThreads)
    widen_small_kernel(float* y, const uint8_t* x, int64_t n, bool is_signed) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x;
  if (at < n) y[at] = cpu::small_value(x[at], is_signed);
}

// Launches the map over `arrays`, followed by the copy if there is one.
template <class W, class Map, class... Arrays>
void update(CudaStream stream, int64_t n, const Map& f, cpu::WeightCopy copy, Arrays... arrays) {
  if (copy.type == cpu::CopyType::None) return map(stream, n, f, arrays...);
  if (copy.type == cpu::CopyType::Same) return map(stream, n, f, arrays..., Out<W>{static_cast<W*>(copy.to)});
  if constexpr (sizeof(W) == sizeof(float)) {
    if (copy.type == cpu::CopyType::Bfloat16)
      return map(stream, n, f, arrays..., Out<Bfloat16>{static_cast<Bfloat16*>(copy.to)});
    map(stream, n, f, arrays..., Out<Float16>{static_cast<Float16*>(copy.to)});
  }
}

}  // namespace

template <class W>
void adamw(CudaStream stream, W* p, cpu::WeightCopy copy, W* m, W* v, const W* g, int64_t n,
           const cpu::LateRule<cpu::AdamWRule>& rule) {
  update<W>(stream, n, AdamWMap<W>{{rule}}, copy, Both<W>{p}, Both<W>{m}, Both<W>{v}, In<W>{g});
}
template <class W>
void sgd(CudaStream stream, W* p, cpu::WeightCopy copy, W* b, const W* g, int64_t n,
         const cpu::LateRule<cpu::SgdRule>& rule) {
  if (b == nullptr) return update<W>(stream, n, PlainSgdMap<W>{{rule}}, copy, Both<W>{p}, In<W>{g});
  update<W>(stream, n, SgdMap<W>{{rule}}, copy, Both<W>{p}, Both<W>{b}, In<W>{g});
}
template <class W>
void adagrad(CudaStream stream, W* p, cpu::WeightCopy copy, W* s, const W* g, int64_t n,
             const cpu::LateRule<cpu::AdagradRule>& rule) {
  update<W>(stream, n, AdagradMap<W>{{rule}}, copy, Both<W>{p}, Both<W>{s}, In<W>{g});
}
template <class W>
void lamb(CudaStream stream, W* p, cpu::WeightCopy copy, const W* m, const W* v, int64_t n,
          const cpu::LateRule<cpu::LambRule>& rule) {
  update<W>(stream, n, LambMap<W>{{rule}}, copy, Both<W>{p}, In<W>{m}, In<W>{v});
}

void round_randomly(CudaStream stream, Bfloat16* y, const float* x, int64_t n,
                    const cpu::RandomRoundingRows& rows, const cpu::DropRule& words) {
  if (n == 0) return;
  TRIFOLD_LAUNCH(round_randomly_kernel, dim3(static_cast<unsigned>(parts(n, kMapThreads))), dim3(kMapThreads),
                 0, stream, y, x, n, rows, words);
}

void round_to_small(CudaStream stream, uint8_t* y, const float* x, int64_t n,
                    const cpu::RandomRoundingRows& rows, const cpu::DropRule& words, bool is_signed) {
  if (n == 0) return;
  TRIFOLD_LAUNCH(round_to_small_kernel, dim3(static_cast<unsigned>(parts(n, kMapThreads))), dim3(kMapThreads),
                 0, stream, y, x, n, rows, words, is_signed);
}

void widen_small(CudaStream stream, float* y, const uint8_t* x, int64_t n, bool is_signed) {
  if (n == 0) return;
  TRIFOLD_LAUNCH(widen_small_kernel, dim3(static_cast<unsigned>(parts(n, kMapThreads))), dim3(kMapThreads), 0,
                 stream, y, x, n, is_signed);
}

#define INSTANTIATE(W)                                                                \
  template void adamw<W>(CudaStream, W*, cpu::WeightCopy, W*, W*, const W*, int64_t,  \
                         const cpu::LateRule<cpu::AdamWRule>&);                       \
  template void sgd<W>(CudaStream, W*, cpu::WeightCopy, W*, const W*, int64_t,        \
                       const cpu::LateRule<cpu::SgdRule>&);                           \
  template void adagrad<W>(CudaStream, W*, cpu::WeightCopy, W*, const W*, int64_t,    \
                           const cpu::LateRule<cpu::AdagradRule>&);                   \
  template void lamb<W>(CudaStream, W*, cpu::WeightCopy, const W*, const W*, int64_t, \
                        const cpu::LateRule<cpu::LambRule>&);
INSTANTIATE(double)
INSTANTIATE(float)
#undef INSTANTIATE

}  // namespace trifold::cuda
