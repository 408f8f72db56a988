#include "zero/sharded_optimizer.h"

#include <algorithm>

#include "data_parallel/grad_norm.h"

namespace trifold {

namespace {

size_t parts_of(const UpdateRule& rule, DType dtype) {
  return rule.state_names().size() + (accumulate_type(dtype) == dtype ? 0 : 1);
}

}  // namespace

size_t ShardedOptimizer::bytes_per_element(const OptimizerConfig& config, DType dtype) {
  return parts_of(*make_update_rule(config), dtype) * size_of(accumulate_type(dtype));
}

ShardedOptimizer::ShardedOptimizer(const FlatLayout& layout, const Mesh& mesh, ParamStore& weights,
                                   const GradientBuffer& grads, const OpTable& ops,
                                   const OptimizerConfig& config, DType dtype, uint64_t seed, Stream& stream)
    : layout_(layout),
      mesh_(mesh),
      weights_(weights),
      grads_(grads),
      ops_(ops),
      rule_(make_update_rule(config)),
      weight_decay_(config.weight_decay),
      dtype_(accumulate_type(dtype)),
      masters_(dtype_ != dtype),
      parts_(parts_of(*rule_, dtype)),
      elements_(grads.is_sharded() ? layout.shard_elements() : layout.elements()),
      numbers_(ops, layout.params().size()) {
  const size_t bytes = parts_ * static_cast<size_t>(elements_) * size_of(dtype_);
  if (weights.state_on_host())
    buffer_ = Buffer::shared(bytes, ops.device);
  else if (weights.offload().empty())
    buffer_ = Buffer(bytes, ops.device);
  else
    file_ = FileMemory(weights.offload(), bytes);
  int64_t largest = 0;
  for (const FlatLayout::Unit& unit : layout.units()) {
    segments_.push_back(grads.segments(unit));
    for (const FlatLayout::Segment& segment : segments_.back()) largest = std::max(largest, segment.count);
  }
  if (!rule_->needs_norms() && weights.offload().empty())
    for (const auto& segments : segments_)
      runs_.push_back(
          FlatLayout::joined(segments, [this](ParamId a, ParamId b) { return decay_of(a) == decay_of(b); }));
  if (rule_->needs_norms())
    squares_ = Buffer::shared(static_cast<size_t>(2 * ChunkedSquares::chunks_of(largest)) * sizeof(double),
                              ops.device);
  if (!masters_) {
    weights_.initialise(seed, stream);
    return;
  }
  for (size_t unit = 0; unit < segments_.size(); ++unit)
    stream_through(unit, [&](const FlatLayout::Segment& segment) {
      initialise_segment(layout, segment, part(0, segment), seed, ops, stream);
    });
  refresh_weights(stream);
}

Tensor ShardedOptimizer::part(size_t index, const FlatLayout::Segment& segment) const {
  const int64_t begin =
      static_cast<int64_t>(index) * elements_ + (grads_.is_sharded() ? segment.shard : segment.flat);
  const Tensor all{
      file_.bytes() > 0 ? file_.data() : buffer_.data(), dtype_, {static_cast<int64_t>(parts_) * elements_}};
  return all.rows(begin, begin + segment.count);
}

void ShardedOptimizer::expect(const FlatLayout::Segment& segment) const {
  weights_.expect(segment);
  for (size_t i = 0; i < parts_; ++i) {
    const Tensor values = part(i, segment);
    const auto begin = static_cast<size_t>(static_cast<std::byte*>(values.data) - file_.data());
    file_.expect(begin, begin + values.bytes());
  }
}

void ShardedOptimizer::release(const FlatLayout::Segment& segment) const {
  weights_.release(segment);
  for (size_t i = 0; i < parts_; ++i) {
    const Tensor values = part(i, segment);
    const auto begin = static_cast<size_t>(static_cast<std::byte*>(values.data) - file_.data());
    file_.release(begin, begin + values.bytes());
  }
}

void ShardedOptimizer::release() const {
  if (weights_.offload().empty()) return;
  for (const auto& unit : segments_)
    for (const FlatLayout::Segment& segment : unit) release(segment);
}

template <class Use>
void ShardedOptimizer::stream_through(size_t unit, Use&& use) const {
  const std::vector<FlatLayout::Segment>& segments = segments_[unit];
  for (size_t i = 0; i < segments.size(); ++i) {
    const FlatLayout::Segment& segment = segments[i];
    if (weights_.offload().empty()) {
      use(segment);
      continue;
    }
    for (int64_t begin = 0; begin < segment.count; begin += kOffloadWindow) {
      const int64_t end = begin + kOffloadWindow;
      if (end < segment.count)
        expect(part_of(segment, end, end + kOffloadWindow));
      else if (i + 1 < segments.size())
        expect(part_of(segments[i + 1], 0, kOffloadWindow));
      else if (unit + 1 < segments_.size() && !segments_[unit + 1].empty())
        expect(part_of(segments_[unit + 1].front(), 0, kOffloadWindow));
      const FlatLayout::Segment window = part_of(segment, begin, end);
      use(window);
      release(window);
    }
  }
}

Slice ShardedOptimizer::slice_of(const FlatLayout::Segment& segment, int version) const {
  Slice slice;
  const Tensor weight = weights_.owned(segment, version);
  slice.master = masters_ ? part(0, segment) : weight;
  if (masters_) slice.weight = weight;
  slice.grad = grads_.summed(segment);
  for (size_t i = 0; i < rule_->state_names().size(); ++i)
    slice.state.push_back(part(i + (masters_ ? 1 : 0), segment));
  slice.weight_decay = decay_of(segment.id);
  slice.numbers = numbers_.row(segment.id.index);
  return slice;
}

// Computes the trust ratio of each parameter from the squares of all its slices on all ranks, each counted once.
void ShardedOptimizer::find_trust_ratios(int version, const StepValues& values, Stream& stream) {
  const ParamList& params = layout_.params();
  sums_.assign(2 * static_cast<size_t>(params.size()), {});
  for (size_t unit = 0; unit < segments_.size(); ++unit)
    stream_through(unit, [&](const FlatLayout::Segment& segment) {
      const int64_t count = ChunkedSquares::chunks_of(segment.count);
      const Tensor squares = squares_.tensor(DType::F64, {2, count});
      const Tensor of_weight = squares.rows(0, 1).reshape({count});
      const Tensor of_direction = squares.rows(1, 2).reshape({count});
      rule_->measure(slice_of(segment, version), values, {of_weight, of_direction}, ops_, stream);
      stream.synchronize();
      if (!counts_here(params[segment.id].shard, mesh_.coords(), mesh_.sizes(), grads_.slices(segment.id)))
        return;
      const auto at = 2 * static_cast<size_t>(segment.id.index);
      sums_[at].add(std::span<const double>(of_weight.as<double>(), static_cast<size_t>(count)));
      sums_[at + 1].add(std::span<const double>(of_direction.as<double>(), static_cast<size_t>(count)));
    });
  const std::span<const double> totals = shared_.over(mesh_.comm(kStageAxes), sums_, stream);
  for (int i = 0; i < params.size(); ++i) {
    const auto at = 2 * static_cast<size_t>(i);
    ratios_.push_back(rule_->trust_ratio(totals[at], totals[at + 1], decay_of({i}), values));
  }
}

void ShardedOptimizer::send_numbers(StepValues values, Stream& stream) {
  numbers_.send(stream, [&](int64_t param) {
    if (!ratios_.empty()) values.trust_ratio = ratios_[static_cast<size_t>(param)];
    return rule_->numbers(decay_of({static_cast<int>(param)}), values);
  });
}

void ShardedOptimizer::update_unit(size_t unit, int version, StepValues& values, Stream& stream) {
  const auto update = [&](const FlatLayout::Segment& segment) {
    if (!ratios_.empty()) values.trust_ratio = ratios_[static_cast<size_t>(segment.id.index)];
    rule_->update(slice_of(segment, version), values, ops_, stream);
    if (file_.bytes() > 0) stream.synchronize();  // before the window is released
  };
  if (runs_.empty()) return stream_through(unit, update);
  for (const FlatLayout::Segment& run : runs_[unit]) update(run);
}

// Updates unit by unit, so that units are sent to other ranks while the next ones are computed. Units of the first
// blocks come first, because the next forward begins with them. Files are read in order.
void ShardedOptimizer::step(int version, StepValues values, Stream& stream) {
  ratios_.clear();
  send_numbers(values, stream);
  if (rule_->needs_norms()) {
    find_trust_ratios(version, values, stream);
    send_numbers(values, stream);
  }
  for (size_t i = 0; i < segments_.size(); ++i) {
    const size_t unit = file_.bytes() > 0 ? i : segments_.size() - 1 - i;
    update_unit(unit, version, values, stream);
    if (grads_.is_sharded()) weights_.publish(layout_.units()[unit], version, stream);
  }
  weights_.end_update(stream);
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

void ShardedOptimizer::visit_counted(FunctionRef<void(Tensor values)> use, Stream& stream) const {
  const bool in_file = !weights_.offload().empty();
  for (const FlatLayout::Unit& unit : layout_.units())
    for (const FlatLayout::Segment& segment : counted_segments(layout_, unit, grads_, mesh_)) {
      const int64_t size = in_file ? kOffloadWindow : segment.count;
      for (int64_t begin = 0; begin < segment.count; begin += size) {
        const FlatLayout::Segment window = part_of(segment, begin, begin + size);
        use(masters_ ? part(0, window) : weights_.owned(window));
        if (!in_file) continue;
        stream.synchronize();
        release(window);
      }
    }
}

void ShardedOptimizer::refresh_weights(Stream& stream) {
  for (size_t unit = 0; unit < segments_.size(); ++unit) {
    if (masters_)
      stream_through(unit, [&](const FlatLayout::Segment& segment) {
        ops_.convert(stream, weights_.owned(segment), part(0, segment));
        if (file_.bytes() > 0) stream.synchronize();
      });
    if (grads_.is_sharded()) weights_.publish(layout_.units()[unit], 0, stream);
  }
  weights_.finish(stream);
}

}  // namespace trifold
