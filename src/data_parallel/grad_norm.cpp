#include "data_parallel/grad_norm.h"

#include <cmath>

namespace trifold {

std::vector<FlatLayout::Segment> counted_segments(const FlatLayout& layout, const FlatLayout::Unit& unit,
                                                  const GradientBuffer& grads, const Mesh& mesh) {
  if (unit.lowest_block == kCopyOfTied) return {};
  std::vector<FlatLayout::Segment> counted = grads.segments(unit);
  std::erase_if(counted, [&](const FlatLayout::Segment& segment) {
    return !counts_here(layout.params()[segment.id].shard, mesh.coords(), mesh.sizes(),
                        grads.slices(segment.id));
  });
  return counted;
}

namespace {

// The counted segments of all units, joined.
std::vector<FlatLayout::Segment> counted_runs(const FlatLayout& layout, const GradientBuffer& grads,
                                              const Mesh& mesh, std::optional<int> block) {
  std::vector<FlatLayout::Segment> runs;
  for (const FlatLayout::Unit& unit : layout.units()) {
    std::vector<FlatLayout::Segment> counted = counted_segments(layout, unit, grads, mesh);
    std::erase_if(counted, [&](const FlatLayout::Segment& segment) {
      return block && layout.params()[segment.id].block != *block;
    });
    for (const FlatLayout::Segment& run : FlatLayout::joined(counted, [](ParamId, ParamId) { return true; }))
      runs.push_back(run);
  }
  return runs;
}

int64_t chunks_of(const std::vector<FlatLayout::Segment>& segments) {
  int64_t count = 0;
  for (const FlatLayout::Segment& segment : segments) count += ChunkedSquares::chunks_of(segment.count);
  return count;
}

}  // namespace

GradNorm::GradNorm(const FlatLayout& layout, const GradientBuffer& grads, const Mesh& mesh,
                   const OpTable& ops, std::optional<int> block)
    : grads_(grads),
      mesh_(mesh),
      counted_(counted_runs(layout, grads, mesh, block)),
      chunks_(chunks_of(counted_), ops) {}

void GradNorm::add_squares(ExactSum& squares, Stream& stream) {
  for (const FlatLayout::Segment& segment : counted_) chunks_.take(grads_.summed(segment), stream);
  chunks_.add_to(squares, stream);
}

std::span<double> GradNorm::norms(std::span<ExactSum> squares, Stream& stream) {
  const std::span<double> norms = sums_.over(mesh_.world(), squares, stream);
  for (double& norm : norms) norm = std::sqrt(norm);
  return norms;
}

double clip_factor(double norm, double limit) {
  if (limit == 0 || norm <= limit) return 1;
  return limit / (norm + 1e-6);
}

}  // namespace trifold
