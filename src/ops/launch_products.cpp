// The products of linear layers. On the processor they are the calls they stand for: a product takes so long
// that another pass over its result hardly shows, and the bits stay those of the parts.
#include "ops/launch.h"

namespace trifold::cpu {

void affine(const KernelTable& table, Stream& stream, Tensor y, Tensor x, Tensor w, Tensor bias) {
  const bool biased = bias.rank() > 0;
  if (biased) fill_rows(table, stream, y, bias);
  gemm(table, stream, y, x, false, w, true, 1, biased ? 1 : 0);
}

void affine_add(const KernelTable& table, Stream& stream, Tensor y, Tensor residual, Tensor x, Tensor w,
                Tensor bias) {
  affine(table, stream, y, x, w, bias);
  add(table, stream, y, residual, y);
}

void affine_gelu(const KernelTable& table, Stream& stream, Tensor y, Tensor z, Tensor x, Tensor w,
                 Tensor bias) {
  affine(table, stream, z, x, w, bias);
  gelu(table, stream, y, z);
}

void affine_backward_input(const KernelTable& table, Stream& stream, Tensor dx, Tensor dy, Tensor w,
                           double beta) {
  gemm(table, stream, dx, dy, false, w, false, 1, beta);
}

void affine_backward_gelu(const KernelTable& table, Stream& stream, Tensor dz, Tensor dy, Tensor w,
                          Tensor z) {
  gemm(table, stream, dz, dy, false, w, false, 1, 0);
  gelu_backward(table, stream, dz, dz, z);
}

void affine_backward_weight(const KernelTable& table, Stream& stream, Tensor dw, Tensor db, Tensor dy,
                            Tensor x, bool accumulate) {
  gemm(table, stream, dw, dy, true, x, false, 1, accumulate ? 1 : 0);
  if (db.rank() > 0) column_sum(table, stream, db, dy, accumulate);
}

}  // namespace trifold::cpu
