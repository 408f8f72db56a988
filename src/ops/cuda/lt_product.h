// One matrix product as passed to cuBLASLt, with what is fused into writing its result (epilogue).
//
// cuBLASLt's matrices are column-major: d[m, n] = alpha op(a)[m, k] op(b)[k, n] + beta c, where c is d unless
// set. The algorithm for a product is chosen once for each (types, shape, transposes, epilogue, alignments,
// whether it adds, kind of device) and kept, as is the fact that there is none, so the same call always uses
// the same algorithm and gives the same bits. It is the first of cuBLASLt's proposals that runs
// (lt_engine.h) unless another was measured or set (ops/product_tuning.h). 16-bit factors are summed in f32;
// f32 is computed in f32 unless a product asks for TF32.
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

// An operation fused with the product: applied before it is stored.
enum class Epilogue : uint8_t {
  None,
  Bias,         // d + bias[m]
  ReluBias,     // max(0, d + bias[m])
  GeluAuxBias,  // aux = d + bias[m], d = gelu(aux)
  DGelu,        // d * gelu'(aux)
};

// In bytes, of the scales of factors in 8 bits: on an H100 cuBLASLt 13.1 proposes algorithms for other
// addresses too, and rejects each when it is to multiply.
constexpr uint32_t kScaleAlignment = 16;

// A factor of 8 bits: its format, and the device address of the number by which it is multiplied.
struct NarrowFactor {
  cpu::Fp8 format = cpu::Fp8::E4M3;
  const float* scale = nullptr;  // none: the factor is of the product's own type
};

// If one factor has 8 bits, both must: then op(a) is transposed and op(b) is not, the only form on Hopper,
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
  void* bias = nullptr;     // of the factors' type
  void* aux = nullptr;      // [m, n] of the result's type
  const void* c = nullptr;  // multiplied by beta, like d; null: d itself
  NarrowFactor narrow_a = {}, narrow_b = {};
  bool tf32 = false;  // factors are f32, rounded to TF32 in the multiplication
  bool is_narrow() const { return narrow_a.scale != nullptr; }
};

// Enqueues the product. Throws if cuBLASLt has no algorithm that runs it.
void enqueue_product(Stream& stream, const Product& product);

// The same unless there is no such algorithm or its bias or aux is misaligned; returns whether it did, and if
// not, nothing was enqueued. Always true on a Dry stream, which computes nothing, and always false on a Worker
// stream, whose device is used by another thread.
bool try_product(Stream& stream, const Product& product);

// The same two, from within work on the queue's stream.
void run_product(CudaQueue& queue, const Product& product);
bool try_product(CudaQueue& queue, const Product& product);

// The choice of algorithms for the products of a device: the first of cuBLASLt's proposals that runs, unless
// another is kept here.
ProductTuning& product_tuning(CudaDevice& device);

// One of cuBLASLt's algorithms for a product (its cublasLtMatmulAlgo_t).
struct ProductAlgorithm {
  std::array<uint64_t, 8> data;
};

// The algorithms that cuBLASLt proposes for the product, best first by its own estimate, at most `most`;
// empty if it has none. For measurements: nothing is kept, and other calls are not affected.
std::vector<ProductAlgorithm> proposed_algorithms(CudaQueue& queue, const Product& product, int most);
void run_product(CudaQueue& queue, const Product& product, const ProductAlgorithm& algorithm);

// Device memory in addition to that of the product itself, for temporary factors; valid until the stream has
// passed the work that is enqueued next.
std::byte* factor_memory(CudaQueue& queue, size_t bytes);

}  // namespace trifold::cuda
