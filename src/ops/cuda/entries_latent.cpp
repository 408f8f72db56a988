// The CUDA entries of multi-head latent attention.
#include "ops/cuda/entries.h"
#include "ops/cuda/entries_support.h"

namespace trifold::cuda {

void latent_heads(Stream& stream, Tensor packed, Tensor q, Tensor kv, Tensor key, Tensor positions,
                  const LatentHeads& latent) {
  const cpu::LatentShape shape = cpu::latent_shape(latent);
  dispatch_float(packed.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "latent_heads",
            [shape, out = packed.as<T>(), query = q.as<T>(), pair = kv.as<T>(), shared = key.as<T>(),
             position = positions.as<int32_t>(), rows = positions.elements()](CudaStream on) {
              latent_heads<T>(on, out, query, pair, shared, position, rows, shape);
            });
  });
}

void latent_heads_backward(Stream& stream, Tensor dq, Tensor dkv, Tensor dkey, Tensor dpacked,
                           Tensor positions, const LatentHeads& latent) {
  const cpu::LatentShape shape = cpu::latent_shape(latent);
  dispatch_float(dpacked.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "latent_heads_backward",
            [shape, query = dq.as<T>(), pair = dkv.as<T>(), shared = dkey.as<T>(), from = dpacked.as<T>(),
             position = positions.as<int32_t>(), rows = positions.elements()](CudaStream on) {
              latent_heads_backward<T>(on, query, pair, shared, from, position, rows, shape);
            });
  });
}

void fit_columns(Stream& stream, Tensor y, Tensor x) {
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    enqueue(stream, "fit_columns",
            [out = y.as<T>(), in = x.as<T>(), rows = y.row_count(), to = y.last_dim(),
             from = x.last_dim()](CudaStream on) { fit_columns<T>(on, out, in, rows, to, from); });
  });
}

void add_latent(OpTable& ops) {
  ops.latent_heads = latent_heads;
  ops.latent_heads_backward = latent_heads_backward;
  ops.fit_columns = fit_columns;
}

}  // namespace trifold::cuda
