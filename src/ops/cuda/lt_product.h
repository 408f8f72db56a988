// One matrix product as cuBLASLt is asked for it, with what it does to the result as it writes it (epilogue).
//
// cuBLASLt counts matrices in columns: d[m, n] = alpha op(a)[m, k] op(b)[k, n] + beta c, c being d
// unless said otherwise. Which algorithm computes a product is asked once for each (types, shape, transposes,
// epilogue, alignments, kind of device) and kept, also that there is none, so the same call always takes the
// same one and gives the same bits; it is the first that cuBLASLt proposes unless another was measured or
// told (ops/product_tuning.h). 16-bit factors are summed in f32; f32 is computed in f32 unless a product asks
// for TF32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/dtype.h"
#include "core/stream.h"
#include "ops/kernels/fp8.h"
#include "ops/product_tuning.h"

namespace trifold::cuda {

class CudaDevice;
class CudaQueue;

// What happens to the product before it is stored, or beside it.
enum class Epilogue : uint8_t {
  None,
  Bias,          // d + bias[m]
  ReluBias,      // max(0, d + bias[m])
  GeluAuxBias,   // aux = d + bias[m], d = gelu(aux)
  DGelu,         // d * gelu'(aux)
  BiasGradient,  // bias[n] = sums over k of op(b), in the result's type
};

// A factor of 8 bits: its format, and where in device memory the number is that it is multiplied by.
struct NarrowFactor {
  cpu::Fp8 format = cpu::Fp8::E4M3;
  const float* scale = nullptr;  // none: the factor is of the product's own type
};

// With factors of 8 bits, both are: op(a) is then transposed and op(b) is not, the only form that Hopper has,
// and all extents are multiples of 16. `factors` remains the type of a bias.
struct Product {
  DType factors, result;
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  const void* a;
  const void* b;
  void* d;
  double alpha, beta;
  Epilogue epilogue = Epilogue::None;
  void* bias = nullptr;     // of the factors' type where it is added, of the result's where it is a gradient
  void* aux = nullptr;      // [m, n] of the result's type
  const void* c = nullptr;  // what beta multiplies, like d; null: d itself
  NarrowFactor narrow_a = {}, narrow_b = {};
  bool tf32 = false;  // factors are f32, and rounded to TF32 as they are multiplied
  bool is_narrow() const { return narrow_a.scale != nullptr; }
};

// Puts the product on the stream. Throws where cuBLASLt has no algorithm for it.
void enqueue_product(Stream& stream, const Product& product);

// The same from within a piece of work of the queue's stream.
void run_product(CudaQueue& queue, const Product& product);

// How products of a device get their algorithms: cuBLASLt's first proposal, but for those that are kept here.
ProductTuning& product_tuning(CudaDevice& device);

// One of the ways in which cuBLASLt can compute a product (its cublasLtMatmulAlgo_t).
struct ProductAlgorithm {
  std::array<uint64_t, 8> data;
};

// The algorithms that cuBLASLt proposes for the product, best first by its own estimate, `most` at most; none
// where it has none. For measurements: nothing is kept, and other calls take what they took.
std::vector<ProductAlgorithm> proposed_algorithms(CudaQueue& queue, const Product& product, int most);
void run_product(CudaQueue& queue, const Product& product, const ProductAlgorithm& algorithm);

// Device memory beside what products need themselves, for factors that are made on the way; good until the
// stream is past what is enqueued next.
std::byte* factor_memory(CudaQueue& queue, size_t bytes);

// Whether cuBLASLt has an algorithm for the product; asks it the first time. Always on a Dry stream, which
// computes nothing, and never on a Worker stream, whose device is another thread's.
bool is_taken(Stream& stream, const Product& product);

// Memory for the `columns` numbers (f32 or f64) of a BiasGradient, good until the stream is past the work
// that is enqueued next; null where they are too many.
void* bias_gradient_memory(Stream& stream, int64_t columns);

}  // namespace trifold::cuda
