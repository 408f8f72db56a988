#include "ops/cuda/gemm.h"

#include "ops/cuda/entries.h"
#include "ops/cuda/lt_product.h"
#include "ops/launch_support.h"

namespace trifold::cuda {

namespace {

// What cuBLASLt is asked for c = alpha op(a) op(b) + beta c. By columns the second factor comes first, and
// what was transposed still is.
Product product_of(Tensor c, Tensor a, bool transpose_a, Tensor b, bool transpose_b, double alpha,
                   double beta) {
  cpu::expect_matrix("gemm", "a", a);
  cpu::expect_matrix("gemm", "c", c);
  const int64_t m = c.row_count();
  const int64_t n = c.last_dim();
  const int64_t k = transpose_a ? a.row_count() : a.last_dim();
  cpu::expect("gemm", "a", a, a.dtype, m * k);
  cpu::expect("gemm", "b", b, a.dtype, k * n);
  check(c.dtype == a.dtype || c.dtype == accumulate_type(a.dtype),
        "gemm: {} factors cannot become a {} product", name_of(a.dtype), name_of(c.dtype));
  check(k > 0, "gemm: a product over no elements");
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
          .beta = beta};
}

Product with(Product product, Epilogue epilogue, void* bias, void* aux = nullptr) {
  product.epilogue = epilogue;
  product.bias = bias;
  product.aux = aux;
  return product;
}

bool is_16bit(DType dtype) { return accumulate_type(dtype) != dtype; }

// Whether `product` was put on the stream.
bool taken(Stream& stream, const Product& product) {
  if (!is_taken(stream, product)) return false;
  enqueue_product(stream, product);
  return true;
}

}  // namespace

void gemm(Stream& stream, Tensor c, Tensor a, bool transpose_a, Tensor b, bool transpose_b, double alpha,
          double beta) {
  enqueue_product(stream, product_of(c, a, transpose_a, b, transpose_b, alpha, beta));
}

void affine(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias) {
  if (bias.rank() == 0) return gemm(stream, y, x, false, w, true, 1, 0);
  const Product product = product_of(y, x, false, w, true, 1, 0);
  cpu::expect("affine", "bias", bias, x.dtype, product.m);
  if (taken(stream, with(product, Epilogue::Bias, bias.data))) return;
  composed_affine(gemm, stream, y, x, w, bias);
}

// The residual is what cuBLASLt calls c: read as the result is written.
void affine_add(Stream& stream, Tensor y, Tensor residual, Tensor x, Tensor w, Tensor bias) {
  Product product = product_of(y, x, false, w, true, 1, 1);
  cpu::expect("affine_add", "residual", residual, y.dtype, y.elements());
  product.c = residual.data;
  if (bias.rank() > 0) {
    cpu::expect("affine_add", "bias", bias, x.dtype, product.m);
    product = with(product, Epilogue::Bias, bias.data);
  }
  if (taken(stream, product)) return;
  affine(stream, y, x, w, bias);
  add(stream, y, residual, y);
}

void affine_gelu(Stream& stream, Tensor y, Tensor z, Tensor x, Tensor w, Tensor bias) {
  const Product product = product_of(y, x, false, w, true, 1, 0);
  cpu::expect("affine_gelu", "z", z, y.dtype, y.elements());
  if (bias.rank() > 0 && is_16bit(x.dtype) &&
      taken(stream, with(product, Epilogue::GeluAuxBias, bias.data, z.data)))
    return;
  affine(stream, z, x, w, bias);
  gelu(stream, y, z);
}

void affine_backward_input(Stream& stream, Tensor dx, Tensor dy, Tensor w, double beta) {
  gemm(stream, dx, dy, false, w, false, 1, beta);
}

void affine_backward_gelu(Stream& stream, Tensor dz, Tensor dy, Tensor w, Tensor z) {
  const Product product = product_of(dz, dy, false, w, false, 1, 0);
  cpu::expect("affine_backward_gelu", "z", z, dz.dtype, dz.elements());
  if (is_16bit(dy.dtype) && taken(stream, with(product, Epilogue::DGelu, nullptr, z.data))) return;
  composed_gelu_backward(gemm, stream, dz, dy, w, z);
}

// cuBLASLt assigns the gradient of the bias: what is added to comes from memory of its own.
void affine_backward_weight(Stream& stream, Tensor dw, Tensor db, Tensor dy, Tensor x, bool accumulate) {
  const double beta = accumulate ? 1 : 0;
  if (db.rank() == 0) return gemm(stream, dw, dy, true, x, false, 1, beta);
  const Product product = product_of(dw, dy, true, x, false, 1, beta);
  cpu::expect("affine_backward_weight", "db", db, accumulate_type(dy.dtype), product.n);
  void* sums = dw.dtype != db.dtype ? nullptr
               : accumulate         ? bias_gradient_memory(stream, product.n)
                                    : db.data;
  if (sums == nullptr || !taken(stream, with(product, Epilogue::BiasGradient, sums)))
    return composed_backward_weight(gemm, stream, dw, db, dy, x, accumulate);
  if (accumulate) reduce(stream, db.flat(), {sums, db.dtype, {product.n}}, Reduce::Sum);
}

void linear(Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias, bool relu) {
  const Product product = product_of(y, x, false, w, true, 1, 0);
  cpu::expect("linear", "bias", bias, x.dtype, product.m);
  if (taken(stream, with(product, relu ? Epilogue::ReluBias : Epilogue::Bias, bias.data))) return;
  enqueue_product(stream, product);
  bias_relu(stream, y, bias, relu);
}

}  // namespace trifold::cuda
