#include "zero/sharded_optimizer.h"

#include <algorithm>

namespace trifold {

namespace {

size_t parts_of(const UpdateRule& rule, DType dtype) {
  return rule.state_names().size() + (accumulate_type(dtype) == dtype ? 0 : 1);
}

int64_t chunks(int64_t elements) { return (elements + kNormChunk - 1) / kNormChunk; }

}  // namespace

size_t ShardedOptimizer::bytes_per_element(const OptimizerConfig& config, DType dtype) {
  return parts_of(*make_update_rule(config), dtype) * size_of(accumulate_type(dtype));
}

ShardedOptimizer::ShardedOptimizer(const FlatLayout& layout, const DataGroups& groups, const Mesh& mesh,
                                   ParamStore& weights, const GradientBuffer& grads, const OpTable& ops,
                                   const OptimizerConfig& config, DType dtype, uint64_t seed, Stream& stream)
    : layout_(layout),
      mesh_(mesh),
      weights_(weights),
      grads_(grads),
      ops_(ops),
      rule_(make_update_rule(config)),
      weight_decay_(config.weight_decay),
      counts_(grads.slice() ? groups.replicas().rank() == 0 : mesh.coord(Axis::Dp) == 0),
      dtype_(accumulate_type(dtype)),
      masters_(dtype_ != dtype),
      elements_(grads.slice() ? layout.shard_elements() : layout.elements()),
      buffer_(parts_of(*rule_, dtype) * static_cast<size_t>(elements_) * size_of(dtype_)) {
  int64_t largest = 0;
  for (const FlatLayout::Unit& unit : layout.units()) {
    segments_.push_back(layout.segments(unit, grads.slice()));
    for (const FlatLayout::Segment& segment : segments_.back()) largest = std::max(largest, segment.count);
  }
  if (rule_->needs_norms()) squares_ = Buffer(static_cast<size_t>(2 * chunks(largest)) * sizeof(double));
  if (!masters_) return;
  for (const auto& unit : segments_)
    for (const FlatLayout::Segment& segment : unit)
      initialise_segment(layout, segment, part(0, segment), seed);
  refresh_weights(stream);
}

Tensor ShardedOptimizer::part(size_t index, const FlatLayout::Segment& segment) const {
  const int64_t begin =
      static_cast<int64_t>(index) * elements_ + (grads_.slice() ? segment.shard : segment.flat);
  return buffer_.tensor(dtype_, {begin + segment.count}).rows(begin, begin + segment.count);
}

Slice ShardedOptimizer::slice_of(const FlatLayout::Segment& segment, int version) const {
  Slice slice;
  const Tensor weight = weights_.owned(segment, version);
  slice.master = masters_ ? part(0, segment) : weight;
  if (masters_) slice.weight = weight;
  slice.grad = grads_.summed(segment);
  for (size_t i = 0; i < rule_->state_names().size(); ++i)
    slice.state.push_back(part(i + (masters_ ? 1 : 0), segment));
  slice.weight_decay = layout_.params()[segment.id].decay ? weight_decay_ : 0;
  return slice;
}

// The ratio of each parameter: the squares of all its slices, on whatever ranks, each counted once.
void ShardedOptimizer::find_trust_ratios(int version, const StepValues& values, Stream& stream) {
  const ParamList& params = layout_.params();
  sums_.assign(2 * static_cast<size_t>(params.size()), {});
  for (const auto& unit : segments_)
    for (const FlatLayout::Segment& segment : unit) {
      const int64_t count = chunks(segment.count);
      const Tensor squares = squares_.tensor(DType::F64, {2, count});
      const Tensor of_weight = squares.rows(0, 1).reshape({count});
      const Tensor of_direction = squares.rows(1, 2).reshape({count});
      rule_->measure(slice_of(segment, version), values, {of_weight, of_direction}, ops_, stream);
      stream.synchronize();
      const bool everywhere = params[segment.id].shard.replicated.has(Axis::Tp);
      if (!counts_ || (everywhere && mesh_.coord(Axis::Tp) != 0)) continue;
      const auto at = 2 * static_cast<size_t>(segment.id.index);
      sums_[at].add(std::span<const double>(of_weight.as<double>(), static_cast<size_t>(count)));
      sums_[at + 1].add(std::span<const double>(of_direction.as<double>(), static_cast<size_t>(count)));
    }
  limbs_.clear();
  for (ExactSum& sum : sums_) limbs_.insert(limbs_.end(), sum.limbs().begin(), sum.limbs().end());
  mesh_.comm({Axis::Dp, Axis::Tp})
      .all_reduce({limbs_.data(), DType::I64, {static_cast<int64_t>(limbs_.size())}}, Reduce::Sum, stream);
  stream.synchronize();
  const auto total = [&](size_t index) {
    ExactSum sum;
    sum.add_limbs(std::span<const int64_t>(limbs_).subspan(index * ExactSum::kLimbs, ExactSum::kLimbs));
    return sum.value();
  };
  ratios_.clear();
  for (int i = 0; i < params.size(); ++i) {
    const auto at = 2 * static_cast<size_t>(i);
    ratios_.push_back(trust_ratio(total(at), total(at + 1), params[{i}].decay ? weight_decay_ : 0));
  }
}

// Unit by unit, so that the first are on their way to the other ranks while the next are computed.
void ShardedOptimizer::step(int version, StepValues values, Stream& stream) {
  if (rule_->needs_norms()) find_trust_ratios(version, values, stream);
  for (size_t unit = 0; unit < segments_.size(); ++unit) {
    for (const FlatLayout::Segment& segment : segments_[unit]) {
      if (!ratios_.empty()) values.trust_ratio = ratios_[static_cast<size_t>(segment.id.index)];
      rule_->update(slice_of(segment, version), values, ops_, stream);
    }
    if (grads_.slice()) weights_.publish(layout_.units()[unit], version, stream);
  }
  weights_.finish(stream);
}

std::vector<ShardedOptimizer::Piece> ShardedOptimizer::pieces() const {
  std::vector<Piece> pieces;
  for (const auto& unit : segments_)
    for (const FlatLayout::Segment& segment : unit) {
      pieces.push_back({"param", segment, masters_ ? part(0, segment) : weights_.owned(segment)});
      for (size_t i = 0; i < rule_->state_names().size(); ++i)
        pieces.push_back({rule_->state_names()[i], segment, part(i + (masters_ ? 1 : 0), segment)});
    }
  return pieces;
}

void ShardedOptimizer::refresh_weights(Stream& stream) {
  for (size_t unit = 0; unit < segments_.size(); ++unit) {
    if (masters_)
      for (const FlatLayout::Segment& segment : segments_[unit])
        ops_.convert(stream, weights_.owned(segment), part(0, segment));
    if (grads_.slice()) weights_.publish(layout_.units()[unit], 0, stream);
  }
  weights_.finish(stream);
}

}  // namespace trifold
