#include "ops/cuda/gemm.h"

#include "ops/composed.h"
#include "ops/cuda/entries.h"
#include "ops/cuda/lt_product.h"
#include "ops/cuda/table.h"

namespace trifold::cuda {

namespace {

// `Precision` applies to products of f32 factors; other types are not affected.

// The product in cuBLASLt's terms for c = alpha op(a) op(b) + beta c. In its column-major order the factors
// are swapped, and transposes stay as they are.
template <F32Products Precision>
Product product_of(Tensor c, Tensor a, bool transpose_a, Tensor b, bool transpose_b, double alpha,
                   double beta) {
  const int64_t m = c.row_count();
  const int64_t n = c.last_dim();
  const int64_t k = transpose_a ? a.row_count() : a.last_dim();
  check(k > 0, "gemm: the inner extent is 0");
  return {.factors = a.dtype,
          .result = c.dtype,
          .m = n,
          .n = m,
          .k = k,
          .transpose_a = transpose_b,
          .transpose_b = transpose_a,
          .a = b.data,
          .b = a.data,
          .d = c.data,
          .alpha = alpha,
          .beta = beta,
          .tf32 = Precision == F32Products::Tf32 && a.dtype == DType::F32};
}

Product with(Product product, Epilogue epilogue, void* bias, void* aux = nullptr) {
  product.epilogue = epilogue;
  product.bias = bias;
  product.aux = aux;
  return product;
}

bool is_16bit(DType dtype) { return accumulate_type(dtype) != dtype; }

template <F32Products Precision>
void gemm(Stream& stream, Tensor c, Tensor a, bool transpose_a, Tensor b, bool transpose_b, double alpha,
          double beta) {
  enqueue_product(stream, product_of<Precision>(c, a, transpose_a, b, transpose_b, alpha, beta));
}

template <F32Products Precision>
void affine(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias) {
  if (bias.rank() == 0) return gemm<Precision>(stream, y, x, false, w, true, 1, 0);
  const Product product = product_of<Precision>(y, x, false, w, true, 1, 0);
  if (try_product(stream, with(product, Epilogue::Bias, bias.data))) return;
  Composed<raw_ops<Precision>>::affine(stream, y, x, w, bias);
}

// The residual is cuBLASLt's matrix c, which is read as the result is written.
template <F32Products Precision>
void affine_add(Stream& stream, Tensor y, Tensor residual, Tensor x, Tensor w, Tensor bias) {
  Product product = product_of<Precision>(y, x, false, w, true, 1, 1);
  product.c = residual.data;
  if (bias.rank() > 0) {
    product = with(product, Epilogue::Bias, bias.data);
  }
  if (try_product(stream, product)) return;
  Composed<raw_ops<Precision>>::affine_add(stream, y, residual, x, w, bias);
}

template <F32Products Precision>
void affine_gelu(Stream& stream, const Forms& y, Tensor z, Tensor x, Tensor w, Tensor bias) {
  const Product product = product_of<Precision>(y.rows, x, false, w, true, 1, 0);
  if (bias.rank() > 0 && is_16bit(x.dtype) &&
      try_product(stream, with(product, Epilogue::GeluAuxBias, bias.data, z.data)))
    return;
  Composed<raw_ops<Precision>>::affine_gelu(stream, y, z, x, w, bias);
}

template <F32Products Precision>
void affine_backward_input(Stream& stream, Tensor dx, Tensor dy, Tensor w, double beta) {
  gemm<Precision>(stream, dx, dy, false, w, false, 1, beta);
}

template <F32Products Precision>
void affine_backward_gelu(Stream& stream, Tensor dz, Tensor dy, Tensor w, Tensor z) {
  const Product product = product_of<Precision>(dz, dy, false, w, false, 1, 0);
  if (is_16bit(dy.dtype) && try_product(stream, with(product, Epilogue::DGelu, nullptr, z.data))) return;
  Composed<raw_ops<Precision>>::affine_backward_gelu(stream, dz, dy, w, z);
}

// Not by cuBLASLt's epilogue for bias gradients, which reads dy in a kernel of its own and restricts the product to
// slower algorithms: on an H100 the four weight gradients of a block take 2 to 5 % longer by it (decision 0016).
template <F32Products Precision>
void affine_backward_weight(Stream& stream, Tensor dw, Tensor db, const Forms& dy, const Forms& x,
                            bool accumulate) {
  Composed<raw_ops<Precision>>::affine_backward_weight(stream, dw, db, dy, x, accumulate);
}

template <F32Products Precision>
void linear(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias, bool relu) {
  const Product product = product_of<Precision>(y, x, false, w, true, 1, 0);
  if (try_product(stream, with(product, relu ? Epilogue::ReluBias : Epilogue::Bias, bias.data))) return;
  enqueue_product(stream, product);
  bias_relu(stream, y, bias, relu);
}

// Whether a product of this size takes longer than its launch.
bool is_large(const BatchedProduct& product) {
  constexpr int64_t kLeastMultiplications = int64_t{1} << 22;
  return product.m * product.n * product.k >= kLeastMultiplications;
}

// Large products whose matrices have no gaps between rows are computed one after the other by the library, the others
// in one launch of our own kernel.
template <F32Products Precision>
void batched_product(Stream& stream, Tensor c, Tensor a, Tensor b, const BatchedProduct& batch) {
  const auto dense = [](const MatrixBatch& matrices, int64_t rows, int64_t columns) {
    return matrices.row == (matrices.transposed ? rows : columns);
  };
  if (!is_large(batch) || !dense(batch.a, batch.m, batch.k) || !dense(batch.b, batch.k, batch.n) ||
      !dense(batch.c, batch.m, batch.n))
    return plain_batched_product(stream, c, a, b, batch);
  const auto matrix = [](Tensor tensor, const MatrixBatch& matrices, int64_t outer, int64_t inner,
                         int64_t rows, int64_t columns) {
    const int64_t begin = matrices.begin + outer * matrices.outer + inner * matrices.inner;
    const Tensor flat = tensor.flat(begin, begin + rows * columns);
    return flat.reshape(matrices.transposed ? Shape{columns, rows} : Shape{rows, columns});
  };
  for (int64_t o = 0; o < batch.outer; ++o)
    for (int64_t i = 0; i < batch.inner; ++i)
      gemm<Precision>(stream, matrix(c, batch.c, o, i, batch.m, batch.n),
                      matrix(a, batch.a, o, i, batch.m, batch.k), batch.a.transposed,
                      matrix(b, batch.b, o, i, batch.k, batch.n), batch.b.transposed, batch.alpha,
                      batch.beta);
}

template <F32Products Precision>
void fill_in(OpTable& ops) {
  ops.gemm = gemm<Precision>;
  ops.affine = affine<Precision>;
  ops.affine_add = affine_add<Precision>;
  ops.affine_gelu = affine_gelu<Precision>;
  ops.affine_backward_input = affine_backward_input<Precision>;
  ops.affine_backward_gelu = affine_backward_gelu<Precision>;
  ops.affine_backward_weight = affine_backward_weight<Precision>;
  ops.linear = linear<Precision>;
  ops.batched_product = batched_product<Precision>;
}

}  // namespace

void add_products(OpTable& ops, F32Products f32) {
  if (f32 == F32Products::Tf32)
    fill_in<F32Products::Tf32>(ops);
  else
    fill_in<F32Products::Exact>(ops);
}

}  // namespace trifold::cuda
