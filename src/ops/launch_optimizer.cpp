// Launchers of what the optimizer needs: sums of squares by chunk.
#include "ops/launch.h"
#include "ops/launch_support.h"

namespace trifold::cpu {

void chunk_squares(const KernelTable& table, Stream& stream, Tensor partials, Tensor x) {
  static_assert(kSquaresChunk == kNormChunk);
  const int64_t count = x.elements();
  const int64_t chunks = (count + kNormChunk - 1) / kNormChunk;
  expect("chunk_squares", "partials", partials, DType::F64, chunks);
  dispatch_wide_float(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    stream.run([pool = &stream.pool(), out = partials.as<double>(), in = x.as<T>(), count, chunks,
                kernel = kernels<T>(table).chunk_squares] {
      pool->parallel_for(chunks, kCheapGrain / kNormChunk, [=](int64_t begin, int64_t end) {
        const int64_t first = begin * kNormChunk;
        kernel(out + begin, in + first, std::min(count, end * kNormChunk) - first);
      });
    });
  });
}

}  // namespace trifold::cpu
