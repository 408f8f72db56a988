// Reads whole vectors of any floating-point storage type; number.h reads single elements.
#pragma once

#include "ops/kernels/number.h"
#include "ops/kernels/simd.h"

namespace trifold::cpu {
namespace {  // NOLINT(google-build-namespaces): internal linkage, see lane.h

// Loads a vector of T from elements stored as T or in 16 bits.
template <class T>
[[gnu::always_inline]] inline typename Simd<T>::Vector load_vector(const T* from) {
  typename Simd<T>::Vector result;
  __builtin_memcpy(&result, from, kVectorBytes);
  return result;
}
using Words [[gnu::vector_size(kVectorBytes)]] = uint32_t;
using HalfWords [[gnu::vector_size(kVectorBytes / 2)]] = uint16_t;
[[gnu::always_inline]] inline Words load_words(const void* from) {
  HalfWords words;
  __builtin_memcpy(&words, from, sizeof words);
  return __builtin_convertvector(words, Words);
}
template <class T>
[[gnu::always_inline]] inline typename Simd<T>::Vector load_vector(const Bfloat16* from) {
  return widen_bfloat16<typename Simd<T>::Vector>(load_words(from));
}
template <class T>
[[gnu::always_inline]] inline typename Simd<T>::Vector load_vector(const Float16* from) {
  return widen_float16<typename Simd<T>::Vector>(load_words(from));
}

// Reads a vector at position i of an array, for the terms of a sum.
template <class T>
struct At {
  int64_t i;
  template <class Stored>
  [[gnu::always_inline]] inline typename Simd<T>::Vector operator()(const Stored* array) const {
    return load_vector<T>(array + i);
  }
};

// Reads one element at position i, where fewer than a whole vector are left.
template <class T>
struct AtOne {
  int64_t i;
  template <class Stored>
  [[gnu::always_inline]] inline T operator()(const Stored* array) const {
    return value(array[i]);
  }
};

}  // namespace
}  // namespace trifold::cpu
