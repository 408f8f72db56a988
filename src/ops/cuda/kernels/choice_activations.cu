// Activations of the rows of experts with their gates, in 16 bits and whole packs: each number is read once and written
// once, where activation and gates alone read and write rows two and three times. Numbers are rounded where the separate
// operations round them. Other types and shapes are computed by these (ops/composed.h).
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/kernels/formulas.h"

namespace trifold::cuda {

namespace {

constexpr int kForwardThreads = 256;
constexpr int kBackwardThreads = 128;
constexpr int kPacksAhead = 2;  // a thread has so many loads of each half of a row in flight

// f(x) and its derivative, for a formula of one number.
template <class Formula>
struct OfOne {
  static constexpr int kHalves = 1;
  __device__ float forward(const float (&x)[1]) const { return Formula::forward(x[0]); }
  __device__ void backward(float (&dx)[1], float dy, const float (&x)[1]) const {
    dx[0] = dy * Formula::slope(x[0]);
  }
};

// A formula of the two halves of a row, of which one is the gate.
template <class Formula>
struct OfHalves {
  static constexpr int kHalves = 2;
  cpu::GateNumbers<float> by;
  __device__ float forward(const float (&x)[2]) const { return Formula::forward(x[0], x[1], by); }
  __device__ void backward(float (&dx)[2], float dy, const float (&x)[2]) const {
    Formula::backward(dx[0], dx[1], dy, x[0], x[1], by);
  }
};

template <int Halves, class T>
struct HalfPacks {
  FullPack<T> half[Halves];
  __device__ inline void load(const T* x, int64_t row, int64_t column, int64_t columns) {
#pragma unroll
    for (int h = 0; h < Halves; ++h) half[h].load(x + (row * Halves + h) * columns + column);
  }
  __device__ inline void store(T* x, int64_t row, int64_t column, int64_t columns) const {
#pragma unroll
    for (int h = 0; h < Halves; ++h) half[h].store(x + (row * Halves + h) * columns + column);
  }
  __device__ inline void take(float (&numbers)[Halves], int i) const {
#pragma unroll
    for (int h = 0; h < Halves; ++h) numbers[h] = value(half[h].at[i]);
  }
};

// A thread writes kPacksAhead packs of y, in the order of choices.
template <class Form, class T>
__global__ void __launch_bounds__(kForwardThreads)
    activate_choices_kernel(Form form, T* y, const T* x, const float* gates, const int32_t* rows,
                            int64_t packs, uint32_t row_packs, int64_t columns) {
  constexpr int kPer = kPerPack<T>;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * (kForwardThreads * kPacksAhead) + threadIdx.x;
  HalfPacks<Form::kHalves, T> in[kPacksAhead];
  int64_t at[kPacksAhead];
  float gate[kPacksAhead];
#pragma unroll
  for (int p = 0; p < kPacksAhead; ++p) {
    // Loads of a pack behind the last one read the last one again: a branch would wait for the loads before it.
    const int64_t wanted = first + p * kForwardThreads;
    const int64_t pack = wanted < packs ? wanted : packs - 1;
    const int64_t choice = packs <= 0xffffffff ? static_cast<uint32_t>(pack) / row_packs : pack / row_packs;
    const int64_t column = (pack - choice * row_packs) * kPer;
    const int64_t row = rows[choice];
    gate[p] = gates[choice];
    at[p] = row * columns + column;
    in[p].load(x, row, column, columns);
  }
#pragma unroll
  for (int p = 0; p < kPacksAhead; ++p) {
    if (first + p * kForwardThreads >= packs) return;
    FullPack<T> out;
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      float numbers[Form::kHalves];
      in[p].take(numbers, i);
      put(out.at[i], form.forward(numbers));
      put(out.at[i], gate[p] * value(out.at[i]));
    }
    out.store(y + at[p]);
  }
}

// One block per choice. The order of the sum depends on the columns alone.
template <class Form, class T>
__global__ void __launch_bounds__(kBackwardThreads)
    activate_choices_backward_kernel(Form form, T* dx, T* y, float* dgates, const T* dy, const T* x,
                                     const float* gates, const int32_t* rows, int64_t columns) {
  constexpr int kPer = kPerPack<T>;
  const float gate = gates[blockIdx.x];
  const int64_t row = rows[blockIdx.x];
  float sum[1] = {0};
  for (int64_t column = int64_t{threadIdx.x} * kPer; column < columns; column += kBackwardThreads * kPer) {
    FullPack<T> slope, out;
    HalfPacks<Form::kHalves, T> in;
    slope.load(dy + row * columns + column);
    in.load(x, row, column, columns);
#pragma unroll
    for (int i = 0; i < kPer; ++i) {
      float numbers[Form::kHalves], slopes[Form::kHalves];
      in.take(numbers, i);
      const float d = value(slope.at[i]);
      put(out.at[i], form.forward(numbers));
      sum[0] += d * value(out.at[i]);
      put(slope.at[i], gate * d);
      put(out.at[i], gate * value(out.at[i]));
      form.backward(slopes, value(slope.at[i]), numbers);
#pragma unroll
      for (int h = 0; h < Form::kHalves; ++h) put(in.half[h].at[i], slopes[h]);
    }
    in.store(dx, row, column, columns);
    out.store(y + row * columns + column);
  }
  combine_row(sum, Plus{});
  if (threadIdx.x == 0) dgates[blockIdx.x] = sum[0];
}

// Calls body(form) with the formula of this index in the list.
template <class Body, class... Each>
void with_formula(cpu::FormulaList<Each...>, const ChoiceActivation& activation, const Body& body) {
  size_t next = 0;
  ((next++ == activation.formula ? body(OfOne<Each>{}) : void()), ...);
}
template <class Body, class... Each>
void with_gate(cpu::FormulaList<Each...>, const ChoiceActivation& activation, const Body& body) {
  const cpu::GateNumbers<float> by(activation.rule);
  size_t next = 0;
  ((next++ == activation.formula ? body(OfHalves<Each>{by}) : void()), ...);
}
template <class Body>
void with_form(const ChoiceActivation& activation, const Body& body) {
  if (activation.gated)
    with_gate(cpu::Gates(), activation, body);
  else
    with_formula(cpu::Activations(), activation, body);
}

}  // namespace

template <class T>
void activate_choices(CudaStream stream, const ChoiceActivation& activation, T* y, const T* x,
                      const float* gates, const int32_t* row, int64_t choices, int64_t columns) {
  const int64_t row_packs = columns / kPerPack<T>;
  const int64_t packs = choices * row_packs;
  if (packs == 0) return;
  const dim3 grid(static_cast<unsigned>(parts(packs, kForwardThreads * kPacksAhead)));
  with_form(activation, [&](auto form) {
    TRIFOLD_LAUNCH((activate_choices_kernel<decltype(form), T>), grid, dim3(kForwardThreads), 0, stream, form,
                   y, x, gates, row, packs, static_cast<uint32_t>(row_packs), columns);
  });
}

template <class T>
void activate_choices_backward(CudaStream stream, const ChoiceActivation& activation, T* dx, T* y,
                               float* dgates, const T* dy, const T* x, const float* gates, const int32_t* row,
                               int64_t choices, int64_t columns) {
  if (choices == 0) return;
  const dim3 grid(static_cast<unsigned>(choices));
  with_form(activation, [&](auto form) {
    TRIFOLD_LAUNCH((activate_choices_backward_kernel<decltype(form), T>), grid, dim3(kBackwardThreads), 0,
                   stream, form, dx, y, dgates, dy, x, gates, row, columns);
  });
}

#define INSTANTIATE(T)                                                                                      \
  template void activate_choices<T>(CudaStream, const ChoiceActivation&, T*, const T*, const float*,        \
                                    const int32_t*, int64_t, int64_t);                                      \
  template void activate_choices_backward<T>(CudaStream, const ChoiceActivation&, T*, T*, float*, const T*, \
                                             const T*, const float*, const int32_t*, int64_t, int64_t);
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE

}  // namespace trifold::cuda
