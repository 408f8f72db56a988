// Matrix products through cuBLASLt, with an operation fused into writing the result (epilogue).
//
// Matrices are column-major: d[m, n] = alpha op(a)[m, k] op(b)[k, n] + beta c, where c is d unless set. The algorithm
// is chosen once for each combination of types, shape, transposes, epilogue, alignments, beta being 0 or not, and kind
// of device, and stored, also if there is none: the same call always uses the same algorithm and gives the same bits.
// It is the first of cuBLASLt's proposals that runs (lt_engine.h) unless another was measured or set
// (ops/product_tuning.h). 16-bit factors are summed in f32; f32 is computed in f32 unless a product asks for TF32.
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

// The operation applied to the product before it is stored.
enum class Epilogue : uint8_t {
  None,
  Bias,         // d + bias[m]
  ReluBias,     // max(0, d + bias[m])
  GeluAuxBias,  // aux = d + bias[m], d = gelu(aux)
  DGelu,        // d * gelu'(aux)
};

// Required alignment, in bytes, of the scales of 8-bit factors. For other addresses cuBLASLt 13.1 proposes algorithms
// on an H100, but rejects each when it is called to multiply.
constexpr uint32_t kScaleAlignment = 16;

// The scales of an 8-bit factor [extent, k]:
//   One      of all elements
//   Rows     of 128 elements along k, [ceil(k / 128), extent]
//   Squares  of 128 x 128 elements, [ceil(extent / 128), ceil(k / 128) rounded up to a multiple of 4]
enum class ScaleForm : uint8_t { One, Rows, Squares };

// An 8-bit factor: its format, and the device address of the scales by which it is multiplied.
struct NarrowFactor {
  cpu::Fp8 format = cpu::Fp8::E4M3;
  const float* scale = nullptr;  // null: the factor has type Product::factors
  ScaleForm form = ScaleForm::One;
};

// Either both factors have 8 bits or none. With 8 bits, a must be transposed and b must not (the only form on Hopper),
// all extents must be multiples of 16, and `factors` is the type of the bias. Either both factors have one scale or
// neither; not both have Squares.
struct Product {
  DType factors, result;
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  const void* a;
  const void* b;
  void* d;
  double alpha, beta;
  Epilogue epilogue = Epilogue::None;
  void* bias = nullptr;     // [m], type `factors`
  void* aux = nullptr;      // [m, n], type `result`
  const void* c = nullptr;  // [m, n], type `result`; null: d
  NarrowFactor narrow_a = {}, narrow_b = {};
  bool tf32 = false;  // factors are f32, rounded to TF32 in the multiplication
  bool is_narrow() const { return narrow_a.scale != nullptr; }
};

// Enqueues the product. Throws if cuBLASLt has no algorithm that runs it.
void enqueue_product(Stream& stream, const Product& product);

// Enqueues the product and returns true. Enqueues nothing and returns false if no algorithm runs it, or if its bias or
// aux is misaligned. Always true on a Dry stream, which computes nothing, and always false on a Worker stream, whose
// device is used by another thread.
bool try_product(Stream& stream, const Product& product);

// enqueue_product and try_product for callers that run as work of the queue's stream.
void run_product(CudaQueue& queue, const Product& product);
bool try_product(CudaQueue& queue, const Product& product);

// The choice of algorithms for the products of a device. Lives until the process ends.
ProductTuning& product_tuning(CudaDevice& device);

// One of cuBLASLt's algorithms for a product (its cublasLtMatmulAlgo_t).
struct ProductAlgorithm {
  std::array<uint64_t, 8> data;
};

// At most `most` algorithms that cuBLASLt proposes for the product, the best by its estimate first; empty if it has
// none. For measurements: nothing is stored, and other calls are not affected.
std::vector<ProductAlgorithm> proposed_algorithms(CudaQueue& queue, const Product& product, int most);
void run_product(CudaQueue& queue, const Product& product, const ProductAlgorithm& algorithm);

// Device memory for temporary factors, separate from the product's workspace. Valid until the stream has executed the
// work that is enqueued next.
std::byte* factor_memory(CudaQueue& queue, size_t bytes);

}  // namespace trifold::cuda
