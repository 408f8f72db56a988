// Launchers of the operations of multi-head latent attention.
#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

void latent_heads(const KernelTable& table, Stream& stream, Tensor packed, Tensor q, Tensor kv, Tensor key,
                  Tensor positions, const LatentHeads& latent) {
  const LatentShape shape = latent_shape(latent);
  const int64_t width = 3 * latent.heads * latent.width,
                queries = latent.heads * (latent.plain + latent.turned());
  const int64_t pairs = latent.heads * (latent.plain + latent.value), keys = latent.turned();
  dispatch_float(packed.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_rows(stream, positions.elements(), width, kMathGrain,
              [=, kernel = storage_kernels<T>(table).latent_heads, out = packed.as<T>(), query = q.as<T>(),
               pair = kv.as<T>(), shared = key.as<T>(),
               position = positions.as<int32_t>()](int64_t begin, int64_t end) {
                kernel(out + begin * width, query + begin * queries, pair + begin * pairs,
                       shared + begin * keys, position + begin, end - begin, shape);
              });
  });
}

void latent_heads_backward(const KernelTable& table, Stream& stream, Tensor dq, Tensor dkv, Tensor dkey,
                           Tensor dpacked, Tensor positions, const LatentHeads& latent) {
  const LatentShape shape = latent_shape(latent);
  const int64_t width = 3 * latent.heads * latent.width,
                queries = latent.heads * (latent.plain + latent.turned());
  const int64_t pairs = latent.heads * (latent.plain + latent.value), keys = latent.turned();
  dispatch_float(dpacked.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_rows(stream, positions.elements(), width, kMathGrain,
              [=, kernel = storage_kernels<T>(table).latent_heads_backward, query = dq.as<T>(),
               pair = dkv.as<T>(), shared = dkey.as<T>(), from = dpacked.as<T>(),
               position = positions.as<int32_t>()](int64_t begin, int64_t end) {
                kernel(query + begin * queries, pair + begin * pairs, shared + begin * keys,
                       from + begin * width, position + begin, end - begin, shape);
              });
  });
}

void fit_columns(const KernelTable&, Stream& stream, Tensor y, Tensor x) {
  const int64_t to_width = y.last_dim(), from_width = x.last_dim(), both = std::min(to_width, from_width);
  dispatch_float(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    over_rows(stream, y.row_count(), to_width, kCheapGrain,
              [=, out = y.as<T>(), in = x.as<T>()](int64_t begin, int64_t end) {
                for (int64_t r = begin; r < end; ++r) {
                  std::copy_n(in + r * from_width, both, out + r * to_width);
                  std::fill_n(out + r * to_width + both, to_width - both, T(0.0F));
                }
              });
  });
}

void add_latent(OpTable& ops, const KernelTable& table) {
  bind<&OpTable::latent_heads, latent_heads>(ops, table);
  bind<&OpTable::latent_heads_backward, latent_heads_backward>(ops, table);
  bind<&OpTable::fit_columns, fit_columns>(ops, table);
}

}  // namespace trifold::cpu
