// Cross entropy over a part of the vocabulary: one pass over the logits for the statistics of their rows, one
// for the gradient. For cross_entropy_all, if two rows fit the shared memory of a multiprocessor, a block makes both
// passes over a row in shared memory while the next one is copied there, so logits are read once; the bits are the same.
#include "ops/cuda/kernels/group.cuh"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/map.cuh"
#include "ops/cuda/kernels/tensor_core.cuh"

namespace trifold::cuda {

namespace {

constexpr int kStatsThreads = 512;
constexpr int kStatsPacks = 4;  // packs, and so loads in flight, per thread

// exp(distance) for distances of at most 0, as terms of a sum whose largest is 1. For 16-bit logits it takes
// two instructions of a GPU, where expf takes eight, and a row of the vocabulary would take longer to sum
// than to read. The relative error is 2^-22 plus 2^-24 times the distance: far below that of rounded logits.
template <class T>
__device__ inline Accumulate<T> term(Accumulate<T> distance) {
#if defined(__CUDA_ARCH__)
  if constexpr (!cpu::kIsWide<T>) {
    float power = 0;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(distance * 1.44269504088896341F));
    return power;
  }
#endif
  return cpu::exp_of(distance);
}

// The maximum of some logits, and the sum of the exponentials of their distances from it.
template <class T>
struct Online {
  using Wide = Accumulate<T>;
  Wide most, total;

  // Adds the first `count` elements of some packs.
  template <class Some, int Packs>
  __device__ inline void add(const Some (&packs)[Packs], int count) {
    Wide now = most;
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
      if (k >= count) continue;
#pragma unroll
      for (const T& x : packs[k].at)
        now = cpu::larger(value(x), now);  // skips a NaN, which then shows in the sum
    }
    if (now > most) {
      total *= term<T>(most - now);
      most = now;
    }
#pragma unroll
    for (int k = 0; k < Packs; ++k) {
      if (k >= count) continue;
#pragma unroll
      for (const T& x : packs[k].at) total += term<T>(value(x) - most);
    }
  }
};

template <class T>
struct Single {
  T at[1];
};

// Whole packs of a row in memory; Aligned: at aligned addresses. And of a row in shared memory, where a thread reads
// what it copied there itself.
template <class T, bool Aligned>
struct InMemory {
  const T* row;
  __device__ inline void load(FullPack<T>& pack, int64_t column) const {
    pack.template load<Aligned>(row + column, kPerPack<T>);
  }
};
template <class T>
struct InShared {
  SharedAddress row;
  __device__ inline void load(FullPack<T>& pack, int64_t column) const {
    const uint4 word =
        load_shared(row + static_cast<SharedAddress>(column * static_cast<int64_t>(sizeof(T))));
    memcpy(pack.at, &word, sizeof word);
  }
};

// The statistics of a row, computed by all threads of a block: whole packs first, without bounds checks, then the rest,
// from memory.
template <class T, class Packs>
__device__ inline Online<T> statistics_of(const Packs& whole_packs, const T* row,
                                          const cpu::VocabularyPart& part) {
  using Wide = Accumulate<T>;
  constexpr int kPer = kPerPack<T>;
  Online<T> mine{cpu::kLowest<Wide>, 0};
  const int64_t step = static_cast<int64_t>(blockDim.x) * kPer;
  const int64_t whole = part.held / kPer * kPer;
  for (int64_t c = threadIdx.x * kPer; c < whole; c += kStatsPacks * step) {
    FullPack<T> packs[kStatsPacks];
    int count = 0;
#pragma unroll
    for (int k = 0; k < kStatsPacks; ++k) {
      if (c + k * step >= whole) continue;
      whole_packs.load(packs[k], c + k * step);
      count = k + 1;
    }
    mine.add(packs, count);
  }
  if (whole + threadIdx.x < part.held) {
    const Single<T> last[1] = {{{row[whole + threadIdx.x]}}};
    mine.add(last, 1);
  }
  Wide most[1] = {mine.most};
  combine_row(most, Most{});
  Wide total[1] = {mine.total * cpu::exp_of(mine.most - most[0])};
  combine_row(total, Plus{});
  return {most[0], total[0]};
}

// The logit of a row's label, 0 if it is not in this part.
template <class T>
__device__ inline Accumulate<T> target_of(const T* row, int64_t label, const cpu::VocabularyPart& part) {
  return label >= 0 && label < part.held ? value(row[label]) : Accumulate<T>(0);
}

template <class T, bool Aligned>
__global__ void __launch_bounds__(kStatsThreads)
    softmax_stats_kernel(Accumulate<T>* max, Accumulate<T>* sum, Accumulate<T>* target, const T* logits,
                         const int32_t* labels, cpu::VocabularyPart part) {
  const int64_t r = blockIdx.x;
  const T* row = logits + r * part.columns;
  const Online<T> statistics = statistics_of<T>(InMemory<T, Aligned>{row}, row, part);
  if (threadIdx.x != 0) return;
  max[r] = statistics.most;
  sum[r] = statistics.total;
  target[r] = target_of(row, labels[r] - part.first_id, part);
}

// The gradient of a row's logits.
template <class T>
struct Gradient {
  using Wide = Accumulate<T>;
  Wide most, factor, share;
  int64_t label;

  __device__ inline Gradient(const Online<T>& statistics, float weight, const cpu::LateFactor& scale,
                             int64_t label_at)
      : most(statistics.most),
        factor(static_cast<Wide>(static_cast<double>(weight) * scale.now())),
        share(factor / statistics.total),
        label(label_at) {}

  // Replaces a pack of logits, which begins at column `at`, by its gradient.
  __device__ inline void put_into(FullPack<T>& pack, int64_t at, const cpu::VocabularyPart& part) const {
#pragma unroll
    for (int i = 0; i < kPerPack<T>; ++i) {
      if (at + i >= part.columns) continue;
      Wide grad = 0;
      if (at + i < part.held) {
        grad = term<T>(value(pack.at[i]) - most) * share;
        if (at + i == label) grad -= factor;
      }
      put(pack.at[i], grad);
    }
  }
};

// A block for each multiprocessor, with a row and the next one in its dynamic shared memory. Whole packs only.
template <class T>
__global__ void __launch_bounds__(kStatsThreads, 1)
    cross_entropy_all_kernel(T* dlogits, Accumulate<T>* max, Accumulate<T>* sum, Accumulate<T>* target,
                             const T* logits, const int32_t* labels, const float* weight,
                             cpu::LateFactor scale, int64_t rows, cpu::VocabularyPart part) {
  constexpr int kPer = kPerPack<T>;
  const SharedAddress memory = dynamic_shared<16>();
  const auto row_bytes = static_cast<SharedAddress>(part.columns * static_cast<int64_t>(sizeof(T)));
  const int64_t first = threadIdx.x * kPer;
  const int64_t step = static_cast<int64_t>(blockDim.x) * kPer;
  const auto begin_copy = [&](int64_t r, SharedAddress to) {
    if (r < rows)
      for (int64_t c = first; c < part.columns; c += step)
        copy_async(to + static_cast<SharedAddress>(c * static_cast<int64_t>(sizeof(T))),
                   logits + r * part.columns + c, true);
    commit_copies();
  };
  SharedAddress here = memory;
  SharedAddress next = memory + row_bytes;
  begin_copy(blockIdx.x, here);
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    begin_copy(r + gridDim.x, next);
    await_copies<1>();
    const T* row = logits + r * part.columns;
    T* out = dlogits + r * part.columns;
    const int64_t label = labels[r] - part.first_id;
    const bool labelled = label >= 0 && label < part.held;
    // By the thread that overwrites the label's logit later.
    if (threadIdx.x == (labelled ? label / kPer % blockDim.x : 0)) target[r] = target_of(row, label, part);
    const InShared<T> packs_here{here};
    const Online<T> statistics = statistics_of<T>(packs_here, row, part);
    if (threadIdx.x == 0) {
      max[r] = statistics.most;
      sum[r] = statistics.total;
    }
    __syncthreads();  // the rest of the row, which was read from memory, is overwritten from here on
    const Gradient<T> gradient(statistics, weight[r], scale, label);
    for (int64_t c = first; c < part.columns; c += kStatsPacks * step) {
#pragma unroll
      for (int k = 0; k < kStatsPacks; ++k) {
        const int64_t at = c + k * step;
        if (at >= part.columns) continue;
        FullPack<T> pack;
        packs_here.load(pack, at);
        gradient.put_into(pack, at, part);
        pack.store(out + at);
      }
    }
    const SharedAddress used = here;
    here = next;
    next = used;
  }
}

constexpr int kGradThreads = 256;
constexpr int kGradPacks = 2;

template <class T>
__global__ void __launch_bounds__(kGradThreads)
    cross_entropy_backward_kernel(T* dlogits, const T* logits, const Accumulate<T>* max,
                                  const Accumulate<T>* sum, const int32_t* labels, const float* weight,
                                  cpu::LateFactor scale, cpu::VocabularyPart part, unsigned blocks_per_row,
                                  bool aligned) {
  constexpr int kPer = kPerPack<T>;
  const int64_t r = blockIdx.x / blocks_per_row;
  const int64_t block = blockIdx.x % blocks_per_row;
  const int64_t c = (block * kGradPacks * kGradThreads + threadIdx.x) * kPer;
  FullPack<T> in[kGradPacks];
#pragma unroll
  for (int k = 0; k < kGradPacks; ++k) {
    const int64_t at = c + k * kGradThreads * kPer;
    in[k].load(logits + r * part.columns + at, count_at(at, part.columns, kPer), aligned);
  }
  const Gradient<T> gradient({max[r], sum[r]}, weight[r], scale, labels[r] - part.first_id);
#pragma unroll
  for (int k = 0; k < kGradPacks; ++k) {
    const int64_t at = c + k * kGradThreads * kPer;
    gradient.put_into(in[k], at, part);
    in[k].store(dlogits + r * part.columns + at, count_at(at, part.columns, kPer), aligned);
  }
}

struct Rescale {
  template <class W>
  __device__ void operator()(W& sum, W local_max, W global_max) const {
    sum *= cpu::exp_of(local_max - global_max);
  }
};
struct Entropy {
  template <class W>
  __device__ void operator()(W& loss, W max, W sum, W target) const {
    loss = cpu::log_of(sum) + (max - target);
  }
};

// The threads of a block for a row.
template <class T>
dim3 threads_of(const cpu::VocabularyPart& part) {
  const int64_t wanted = parts(parts(part.columns, kPerPack<T>), kWarp) * kWarp;
  return static_cast<unsigned>(wanted < kWarp ? kWarp : wanted < kStatsThreads ? wanted : kStatsThreads);
}

}  // namespace

template <class T>
void softmax_stats(CudaStream stream, Accumulate<T>* max, Accumulate<T>* sum, Accumulate<T>* target,
                   const T* logits, const int32_t* labels, int64_t rows, const cpu::VocabularyPart& part) {
  if (rows == 0) return;
  const bool aligned = packs<T>(part.columns, logits);
  const auto kernel = aligned ? softmax_stats_kernel<T, true> : softmax_stats_kernel<T, false>;
  TRIFOLD_LAUNCH(kernel, dim3(static_cast<unsigned>(rows)), threads_of<T>(part), 0, stream, max, sum, target,
                 logits, labels, part);
}
template <class W>
void softmax_rescale(CudaStream stream, W* sum, const W* local_max, const W* global_max, int64_t n) {
  map(stream, n, Rescale{}, Both<W>{sum}, In<W>{local_max}, In<W>{global_max});
}
template <class W>
void cross_entropy(CudaStream stream, W* loss, const W* max, const W* sum, const W* target, int64_t n) {
  map(stream, n, Entropy{}, Out<W>{loss}, In<W>{max}, In<W>{sum}, In<W>{target});
}
template <class T>
void cross_entropy_backward(CudaStream stream, T* dlogits, const T* logits, const Accumulate<T>* max,
                            const Accumulate<T>* sum, const int32_t* labels, const float* weight,
                            const cpu::LateFactor& scale, int64_t rows, const cpu::VocabularyPart& part) {
  if (rows == 0 || part.columns == 0) return;
  const auto per_row = static_cast<unsigned>(parts(part.columns, kGradThreads * kGradPacks * kPerPack<T>));
  TRIFOLD_LAUNCH((cross_entropy_backward_kernel<T>), dim3(static_cast<unsigned>(rows) * per_row),
                 dim3(kGradThreads), 0, stream, dlogits, logits, max, sum, labels, weight, scale, part,
                 per_row, packs<T>(part.columns, dlogits, logits));
}

template <class T>
void cross_entropy_all(CudaStream stream, T* dlogits, Accumulate<T>* max, Accumulate<T>* sum,
                       Accumulate<T>* target, const T* logits, const int32_t* labels, const float* weight,
                       const cpu::LateFactor& scale, int64_t rows, const cpu::VocabularyPart& part) {
  if (rows == 0) return;
  const int64_t bytes = 2 * part.columns * static_cast<int64_t>(sizeof(T));
  // exp of f64 leaves no registers for both passes.
  if (sizeof(T) == sizeof(double) || !packs<T>(part.columns, dlogits, logits) ||
      bytes > most_dynamic_shared()) {
    softmax_stats<T>(stream, max, sum, target, logits, labels, rows, part);
    cross_entropy_backward<T>(stream, dlogits, logits, max, sum, labels, weight, scale, rows, part);
    return;
  }
  if constexpr (sizeof(T) < sizeof(double)) {
    allow_dynamic_shared(cross_entropy_all_kernel<T>, static_cast<int>(bytes));
    const int64_t blocks = rows < multiprocessors() ? rows : multiprocessors();
    TRIFOLD_LAUNCH((cross_entropy_all_kernel<T>), dim3(static_cast<unsigned>(blocks)), threads_of<T>(part),
                   static_cast<size_t>(bytes), stream, dlogits, max, sum, target, logits, labels, weight,
                   scale, rows, part);
  }
}

#define INSTANTIATE(T)                                                                                 \
  template void softmax_stats<T>(CudaStream, Accumulate<T>*, Accumulate<T>*, Accumulate<T>*, const T*, \
                                 const int32_t*, int64_t, const cpu::VocabularyPart&);                 \
  template void cross_entropy_all<T>(CudaStream, T*, Accumulate<T>*, Accumulate<T>*, Accumulate<T>*,   \
                                     const T*, const int32_t*, const float*, const cpu::LateFactor&,   \
                                     int64_t, const cpu::VocabularyPart&);                             \
  template void cross_entropy_backward<T>(CudaStream, T*, const T*, const Accumulate<T>*,              \
                                          const Accumulate<T>*, const int32_t*, const float*,          \
                                          const cpu::LateFactor&, int64_t, const cpu::VocabularyPart&);
INSTANTIATE(double)
INSTANTIATE(float)
INSTANTIATE(Bfloat16)
INSTANTIATE(Float16)
#undef INSTANTIATE
#define INSTANTIATE(W)                                                           \
  template void softmax_rescale<W>(CudaStream, W*, const W*, const W*, int64_t); \
  template void cross_entropy<W>(CudaStream, W*, const W*, const W*, const W*, int64_t);
INSTANTIATE(double)
INSTANTIATE(float)
#undef INSTANTIATE

}  // namespace trifold::cuda
