#include "zero/param_norm.h"

#include <cmath>

#include "data_parallel/grad_norm.h"

namespace trifold {

namespace {

int64_t counted_chunks(const FlatLayout& layout, const GradientBuffer& grads, const Mesh& mesh) {
  int64_t chunks = 0;
  for (const FlatLayout::Unit& unit : layout.units())
    for (const FlatLayout::Segment& segment : counted_segments(layout, unit, grads, mesh))
      chunks += ChunkedSquares::chunks_of(segment.count);
  return chunks;
}

}  // namespace

ParamNorm::ParamNorm(const FlatLayout& layout, const GradientBuffer& grads, const ShardedOptimizer& optimizer,
                     const Mesh& mesh, const OpTable& ops)
    : optimizer_(optimizer), mesh_(mesh), chunks_(counted_chunks(layout, grads, mesh), ops) {}

double ParamNorm::measure(Stream& stream) {
  optimizer_.visit_counted([&](Tensor values) { chunks_.take(values, stream); }, stream);
  ExactSum squares;
  chunks_.add_to(squares, stream);
  return std::sqrt(sums_.over(mesh_.world(), {&squares, 1}, stream).front());
}

}  // namespace trifold
