#include "data_parallel/grad_norm.h"

#include <algorithm>
#include <cmath>

namespace trifold {

namespace {

int64_t chunks(const FlatLayout::Segment& segment) { return (segment.count + kGrain - 1) / kGrain; }

}  // namespace

GradNorm::GradNorm(const FlatLayout& layout, const GradientBuffer& grads, const Mesh& mesh,
                   const OpTable& ops, std::optional<int> block)
    : grads_(grads), mesh_(mesh), ops_(ops) {
  int64_t count = 0;
  for (const FlatLayout::Unit& unit : layout.units()) {
    if (unit.lowest_block == kCopyOfTied) continue;
    std::vector<FlatLayout::Segment> counted = grads.segments(unit);
    std::erase_if(counted, [&](const FlatLayout::Segment& segment) {
      const ParamSpec& spec = layout.params()[segment.id];
      return (block && spec.block != *block) ||
             !counts_here(spec.shard, mesh.coords(), mesh.sizes(), grads.slices(segment.id));
    });
    for (const FlatLayout::Segment& run :
         FlatLayout::joined(counted, [](ParamId, ParamId) { return true; })) {
      counted_.push_back(run);
      count += chunks(run);
    }
  }
  partials_ = Buffer(static_cast<size_t>(count) * sizeof(double), ops.device);
  sum_ = Buffer::shared(ExactSum::kLimbs * sizeof(int64_t), ops.device);
}

void GradNorm::add_squares(ExactSum& squares, Stream& stream) {
  const auto count = static_cast<int64_t>(partials_.bytes() / sizeof(double));
  const Tensor partials = partials_.tensor(DType::F64, {count});
  int64_t next = 0;
  for (const FlatLayout::Segment& segment : counted_) {
    ops_.chunk_squares(stream, partials.rows(next, next + chunks(segment)), grads_.summed(segment));
    next += chunks(segment);
  }
  const Tensor sum = sum_.tensor(DType::I64, {ExactSum::kLimbs});
  const std::span<int64_t> limbs(sum.as<int64_t>(), ExactSum::kLimbs);
  std::fill(limbs.begin(), limbs.end(), 0);  // no longer in use: the last call waited for it
  ops_.exact_sum(stream, sum, partials);
  stream.synchronize();
  squares.add_limbs(limbs);
}

std::span<double> GradNorm::norms(std::span<ExactSum> squares, Stream& stream) {
  limbs_.clear();
  for (ExactSum& sum : squares) limbs_.insert(limbs_.end(), sum.limbs().begin(), sum.limbs().end());
  Stream host = stream.host();
  mesh_.world().all_reduce({limbs_.data(), DType::I64, {static_cast<int64_t>(limbs_.size())}}, Reduce::Sum,
                           host);
  norms_.clear();
  for (size_t i = 0; i < squares.size(); ++i) {
    ExactSum all;
    all.add_limbs(std::span<const int64_t>(limbs_).subspan(i * ExactSum::kLimbs, ExactSum::kLimbs));
    norms_.push_back(std::sqrt(all.value()));
  }
  return norms_;
}

double clip_factor(double norm, double limit) {
  if (limit == 0 || norm <= limit) return 1;
  return limit / (norm + 1e-6);
}

}  // namespace trifold
