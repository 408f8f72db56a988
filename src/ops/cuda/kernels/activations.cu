// Activations of one formula, gated activations, dropout.
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/map.cuh"
#include "ops/cuda/kernels/narrow.cuh"
#include "ops/kernels/formulas.h"

namespace trifold::cuda {

namespace {

template <class Formula>
struct ForwardOf {
  template <class Wide>
  __device__ void operator()(Wide& y, Wide x) const {
    y = Formula::forward(x);
  }
};
template <class Formula>
struct BackwardOf {
  template <class Wide>
  __device__ void operator()(Wide& dx, Wide dy, Wide saved) const {
    dx = dy * Formula::slope(saved);
  }
};

// Launches the formula with this index in the list.
template <class T, class... Each>
void forward_of(cpu::FormulaList<Each...>, size_t formula, CudaStream stream, int64_t n, Out<T> y, In<T> x) {
  size_t next = 0;
  ((next++ == formula ? map(stream, n, ForwardOf<Each>{}, y, x) : void()), ...);
}
template <class T, class... Each>
void backward_of(cpu::FormulaList<Each...>, size_t formula, CudaStream stream, int64_t n, Out<T> dx, In<T> dy,
                 In<T> saved) {
  size_t next = 0;
  ((next++ == formula ? map(stream, n, BackwardOf<Each>{}, dx, dy, saved) : void()), ...);
}

template <class Formula, class Wide>
struct GatedOf {
  cpu::GateNumbers<Wide> by;
  __device__ void operator()(Wide& y, Wide gate, Wide up) const { y = Formula::forward(gate, up, by); }
};
template <class Formula, class Wide>
struct GatedSlope {
  cpu::GateNumbers<Wide> by;
  __device__ void operator()(Wide& dgate, Wide& dup, Wide dy, Wide gate, Wide up) const {
    Formula::backward(dgate, dup, dy, gate, up, by);
  }
};

// Launches the gate with this index in the list.
template <class T, class... Each>
void gated_of(cpu::FormulaList<Each...>, size_t formula, const cpu::GateRule& rule, CudaStream stream,
              int64_t rows, int64_t columns, T* y, const T* x) {
  using Wide = Accumulate<T>;
  const cpu::GateNumbers<Wide> by(rule);
  size_t next = 0;
  ((next++ == formula ? map_rows(stream, rows, columns, GatedOf<Each, Wide>{by}, Out<T>{y, columns},
                                 In<T>{x, 2 * columns}, In<T>{x + columns, 2 * columns})
                      : void()),
   ...);
}
template <class T, class... Each>
void gated_backward_of(cpu::FormulaList<Each...>, size_t formula, const cpu::GateRule& rule,
                       CudaStream stream, int64_t rows, int64_t columns, T* dx, const T* dy, const T* x) {
  using Wide = Accumulate<T>;
  const cpu::GateNumbers<Wide> by(rule);
  size_t next = 0;
  ((next++ == formula ? map_rows(stream, rows, columns, GatedSlope<Each, Wide>{by}, Out<T>{dx, 2 * columns},
                                 Out<T>{dx + columns, 2 * columns}, In<T>{dy, columns}, In<T>{x, 2 * columns},
                                 In<T>{x + columns, 2 * columns})
                      : void()),
   ...);
}

// The same with narrow results.
template <class... Each>
void narrow_forward_of(cpu::FormulaList<Each...>, size_t formula, CudaStream stream, const NarrowForms& y,
                       In<Bfloat16> x) {
  size_t next = 0;
  ((next++ == formula ? narrow_map<1>(stream, y, ForwardOf<Each>{}, x) : void()), ...);
}
template <class... Each>
void narrow_backward_of(cpu::FormulaList<Each...>, size_t formula, CudaStream stream, const NarrowForms& dx,
                        In<Bfloat16> dy, In<Bfloat16> saved) {
  size_t next = 0;
  ((next++ == formula ? narrow_map<1>(stream, dx, BackwardOf<Each>{}, dy, saved) : void()), ...);
}
template <class... Each>
void narrow_gated_of(cpu::FormulaList<Each...>, size_t formula, const cpu::GateRule& rule, CudaStream stream,
                     const NarrowForms& y, In<Bfloat16> gate, In<Bfloat16> up) {
  const cpu::GateNumbers<float> by(rule);
  size_t next = 0;
  ((next++ == formula ? narrow_map<1>(stream, y, GatedOf<Each, float>{by}, gate, up) : void()), ...);
}
template <class... Each>
void narrow_gated_backward_of(cpu::FormulaList<Each...>, size_t formula, const cpu::GateRule& rule,
                              CudaStream stream, const NarrowForms& dx, In<Bfloat16> dy, In<Bfloat16> gate,
                              In<Bfloat16> up) {
  const cpu::GateNumbers<float> by(rule);
  size_t next = 0;
  ((next++ == formula ? narrow_map<2>(stream, dx, GatedSlope<Each, float>{by}, dy, gate, up) : void()), ...);
}

// Words are generated four at a time, for four consecutive elements of the whole tensor; a pack whose first
// element is not the first of four also generates the words it shares with its neighbours.
template <class T>
__global__ void __launch_bounds__(kMapThreads)
    dropout_kernel(T* y, const T* residual, const T* x, int64_t n, cpu::LateIndex first, cpu::DropRule rule,
                   bool aligned) {
  using Wide = Accumulate<T>;
  constexpr int kPer = kPerPack<T>;
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x) * kPer;
  const int count = count_at(at, n, kPer);
  FullPack<T> in;
  FullPack<T> base;
  in.load(x + at, count, aligned);
  if (residual != nullptr) base.load(residual + at, count, aligned);
  const auto multiplier = static_cast<Wide>(rule.multiplier);
  const uint64_t element = first.now() + static_cast<uint64_t>(at);
  const bool together = element % 4 == 0;
  cpu::PhiloxWords words{};
#pragma unroll
  for (int i = 0; i < kPer; ++i) {
    if (i >= count) continue;
    uint32_t word = 0;
    if (rule.active) {
      if (together) {
        if (i % 4 == 0)
          words = cpu::philox_block(rule.key_lo, rule.key_hi, (element + static_cast<unsigned>(i)) / 4);
        word = words.at[i % 4];
      } else {
        const uint64_t e = element + static_cast<unsigned>(i);
        if (i == 0 || e % 4 == 0) words = cpu::philox_block(rule.key_lo, rule.key_hi, e / 4);
        const auto which = static_cast<unsigned>(e % 4);
        word =
            which < 2 ? (which == 0 ? words.at[0] : words.at[1]) : (which == 2 ? words.at[2] : words.at[3]);
      }
    }
    // Without dropout the multiplier is 1 and the threshold 0: everything is kept.
    const Wide kept = word >= rule.threshold ? value(in.at[i]) * multiplier : Wide(0);
    put(in.at[i], residual != nullptr ? value(base.at[i]) + kept : kept);
  }
  in.store(y + at, count, aligned);
}

// One element a thread: the factor of a router's input or logits, which are few compared with the experts' rows.
template <class T>
__global__ void __launch_bounds__(kMapThreads)
    scale_uniform_kernel(T* y, const T* x, int64_t n, cpu::LateIndex first, cpu::UniformRule rule) {
  using Wide = Accumulate<T>;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kMapThreads + threadIdx.x;
  if (at >= n) return;
  const uint64_t element = first.now() + static_cast<uint64_t>(at);
  const cpu::PhiloxWords words = cpu::philox_block(rule.words.key_lo, rule.words.key_hi, element / 4);
  const auto which = static_cast<unsigned>(element % 4);
  const uint32_t word =
      which < 2 ? (which == 0 ? words.at[0] : words.at[1]) : (which == 2 ? words.at[2] : words.at[3]);
  put(y[at], value(x[at]) * cpu::uniform_number<Wide>(rule, word));
}

}  // namespace

template <class T>
void activate(CudaStream stream, size_t formula, T* y, const T* x, int64_t n) {
  forward_of<T>(cpu::Activations(), formula, stream, n, {y}, {x});
}
template <class T>
void activate_backward(CudaStream stream, size_t formula, T* dx, const T* dy, const T* saved, int64_t n) {
  backward_of<T>(cpu::Activations(), formula, stream, n, {dx}, {dy}, {saved});
}
template <class T>
void gated(CudaStream stream, size_t formula, const cpu::GateRule& rule, T* y, const T* x, int64_t rows,
           int64_t columns) {
  gated_of<T>(cpu::Gates(), formula, rule, stream, rows, columns, y, x);
}
template <class T>
void gated_backward(CudaStream stream, size_t formula, const cpu::GateRule& rule, T* dx, const T* dy,
                    const T* x, int64_t rows, int64_t columns) {
  gated_backward_of<T>(cpu::Gates(), formula, rule, stream, rows, columns, dx, dy, x);
}
template <class T>
void dropout(CudaStream stream, T* y, const T* residual, const T* x, int64_t n, const cpu::LateIndex& first,
             const cpu::DropRule& rule) {
  if (n == 0) return;
  const auto blocks = static_cast<unsigned>(parts(n, kMapThreads * kPerPack<T>));
  TRIFOLD_LAUNCH((dropout_kernel<T>), dim3(blocks), dim3(kMapThreads), 0, stream, y, residual, x, n, first,
                 rule, packs<T>(0, y, residual, x));
}

template <class T>
void scale_uniform(CudaStream stream, T* y, const T* x, int64_t n, const cpu::LateIndex& first,
                   const cpu::UniformRule& rule) {
  if (n == 0) return;
  TRIFOLD_LAUNCH((scale_uniform_kernel<T>), dim3(static_cast<unsigned>(parts(n, kMapThreads))),
                 dim3(kMapThreads), 0, stream, y, x, n, first, rule);
}

void activate_narrow(CudaStream stream, size_t formula, const NarrowForms& y, const Bfloat16* x) {
  narrow_forward_of(cpu::Activations(), formula, stream, y, {x, y.columns});
}
void activate_backward_narrow(CudaStream stream, size_t formula, const NarrowForms& dx, const Bfloat16* dy,
                              const Bfloat16* saved) {
  narrow_backward_of(cpu::Activations(), formula, stream, dx, {dy, dx.columns}, {saved, dx.columns});
}
void gated_narrow(CudaStream stream, size_t formula, const cpu::GateRule& rule, const NarrowForms& y,
                  const Bfloat16* x) {
  narrow_gated_of(cpu::Gates(), formula, rule, stream, y, {x, 2 * y.columns}, {x + y.columns, 2 * y.columns});
}
void gated_backward_narrow(CudaStream stream, size_t formula, const cpu::GateRule& rule,
                           const NarrowForms& dx, const Bfloat16* dy, const Bfloat16* x) {
  const int64_t columns = dx.columns / 2;
  narrow_gated_backward_of(cpu::Gates(), formula, rule, stream, dx, {dy, columns}, {x, dx.columns},
                           {x + columns, dx.columns});
}

#define INSTANTIATE(T)                                                                                       \
  template void activate<T>(CudaStream, size_t, T*, const T*, int64_t);                                      \
  template void activate_backward<T>(CudaStream, size_t, T*, const T*, const T*, int64_t);                   \
  template void gated<T>(CudaStream, size_t, const cpu::GateRule&, T*, const T*, int64_t, int64_t);          \
  template void gated_backward<T>(CudaStream, size_t, const cpu::GateRule&, T*, const T*, const T*, int64_t, \
                                  int64_t);                                                                  \
  template void dropout<T>(CudaStream, T*, const T*, const T*, int64_t, const cpu::LateIndex&,               \
                           const cpu::DropRule&);                                                            \
  template void scale_uniform<T>(CudaStream, T*, const T*, int64_t, const cpu::LateIndex&,                   \
                                 const cpu::UniformRule&);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
