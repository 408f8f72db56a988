// Numbers: N consecutive elements of an array, read and written with few accesses, and computed in f32 or f64.
// FullPack: 16 bytes of elements.
#pragma once

#include "ops/cuda/launch.cuh"
#include "ops/kernels/math.h"
#include "ops/kernels/number.h"

namespace trifold::cuda {

using cpu::put;
using cpu::value;

// Integers pass through arithmetic unchanged.
__device__ inline int32_t value(int32_t x) { return x; }
__device__ inline int64_t value(int64_t x) { return x; }
__device__ inline void put(int32_t& to, int32_t x) { to = x; }
__device__ inline void put(int64_t& to, int64_t x) { to = x; }
__device__ inline uint16_t value(uint16_t x) { return x; }
__device__ inline uint8_t value(uint8_t x) { return x; }
__device__ inline void put(uint16_t& to, uint16_t x) { to = x; }
__device__ inline void put(uint8_t& to, uint8_t x) { to = x; }

// The word that one access moves.
template <int Bytes>
struct WordOf;
template <>
struct WordOf<16> {
  using Type = uint4;
};
template <>
struct WordOf<8> {
  using Type = uint2;
};
template <>
struct WordOf<4> {
  using Type = uint32_t;
};
template <>
struct WordOf<2> {
  using Type = uint16_t;
};

// Writes a word to global memory. For 16 bytes it is inline assembly: nvcc may split an assignment of a uint4 into four
// stores, in each of which the lanes are 16 bytes apart.
template <class Word>
__device__ inline void store_word(Word* to, const Word& word) {
#if !defined(TRIFOLD_CUDA_EMULATION)
  if constexpr (sizeof(Word) == 16) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(word.x), "r"(word.y), "r"(word.z),
                 "r"(word.w)
                 : "memory");
    return;
  }
#else
  emulation::expect_global(to);
#endif
  *to = word;
}

template <class T, int N>
struct Numbers {
  static constexpr int kBytes = static_cast<int>(sizeof(T)) * N;
  using Word = typename WordOf<(kBytes > 16 ? 16 : kBytes)>::Type;
  static constexpr int kWords = kBytes / static_cast<int>(sizeof(Word));

  alignas(Word) T at[N];

  // Loads all N elements at `from`, whose address must be aligned to words. There is no branch, so consecutive loads in
  // the source are in flight together.
  __device__ inline void load(const T* from) {
    Word words[kWords];
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = reinterpret_cast<const Word*>(from)[i];
    memcpy(at, words, sizeof at);
  }
  __device__ inline void store(T* to) const {  // to global memory
    Word words[kWords];
    memcpy(words, at, sizeof at);
#pragma unroll
    for (int i = 0; i < kWords; ++i) store_word(reinterpret_cast<Word*>(to) + i, words[i]);
  }
  // Stores to shared memory.
  __device__ inline void store_shared(T* to) const {
    Word words[kWords];
    memcpy(words, at, sizeof at);
#pragma unroll
    for (int i = 0; i < kWords; ++i) reinterpret_cast<Word*>(to)[i] = words[i];
  }
  // Loads the first `count` of N elements at `from`; in whole words if `aligned`, that is, if the address is aligned to
  // words. The branch waits for earlier loads: a loop over packs should use load<Whole>.
  __device__ inline void load(const T* from, int count, bool aligned) {
    if (aligned && count == N)
      load(from);
    else
      load<false>(from, count);
  }
  __device__ inline void store(T* to, int count, bool aligned) const {
    if (aligned && count == N)
      store(to);
    else
      store<false>(to, count);
  }
  // load and store with the branch decided at launch: if Whole, the address must be aligned to words and count be N.
  template <bool Whole>
  __device__ inline void load(const T* from, int count) {
    if constexpr (Whole) {
      load(from);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (i < count) at[i] = from[i];
    }
  }
  template <bool Whole>
  __device__ inline void store(T* to, int count) const {
    if constexpr (Whole) {
      store(to);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (i < count) to[i] = at[i];
    }
  }
};

// The number of elements T in 16 bytes.
template <class T>
inline constexpr int kPerPack = 16 / static_cast<int>(sizeof(T));

template <class T>
using FullPack = Numbers<T, kPerPack<T>>;

// The number of positions in [at, at + per) that are below `end`.
__device__ inline int count_at(int64_t at, int64_t end, int per) {
  const int64_t left = end - at;
  return left >= per ? per : left > 0 ? static_cast<int>(left) : 0;
}

template <class T>
inline int64_t parts(T extent, int64_t part) {
  return (static_cast<int64_t>(extent) + part - 1) / part;
}

}  // namespace trifold::cuda
