#include "zero/sharded_optimizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "data_parallel/grad_norm.h"
#include "optim/param_factors.h"

namespace trifold {

namespace {

// The elements of a rank's box of a parameter in the global tensor, as rows. At most the first dim and one more are cut,
// so that the rows from the last cut dim on lie in regular distances.
RandomRounding rows_of(const ShardSpec& spec) {
  int cut = 0;
  for (int dim = 0; dim < spec.global.rank(); ++dim)
    if (spec.local.extent[dim] != spec.global[dim]) cut = dim;
  RandomRounding rows;
  for (int dim = 0; dim < spec.global.rank(); ++dim) {
    rows.begin = rows.begin * spec.global[dim] + spec.local.offset[dim];
    if (dim < cut) continue;
    rows.width *= spec.local.extent[dim];
    rows.stride *= spec.global[dim];
  }
  return rows;
}

// Bytes of masters and state for an element of a matrix, and of another parameter.
std::pair<size_t, size_t> bytes_of_elements(const OptimizerConfig& config, DType dtype) {
  size_t matrices = 0, others = 0;
  for (const StatePart& tensor : state_tensors(*make_update_rule(config), config, dtype)) {
    if (tensor.of != StatePart::Of::Others) matrices += size_of(tensor.type);
    if (tensor.of != StatePart::Of::Matrices) others += size_of(tensor.type);
  }
  return {matrices, others};
}

}  // namespace

size_t ShardedOptimizer::bytes_per_element(const OptimizerConfig& config, DType dtype) {
  const auto [matrices, others] = bytes_of_elements(config, dtype);
  return std::max(matrices, others);
}

size_t ShardedOptimizer::least_bytes_per_element(const OptimizerConfig& config, DType dtype) {
  const auto [matrices, others] = bytes_of_elements(config, dtype);
  return std::min(matrices, others);
}

size_t ShardedOptimizer::work_bytes(const FlatLayout& layout, const MeshSizes& sizes,
                                    const MeshCoords& coords, bool sharded, const OptimizerConfig& config,
                                    DType dtype) {
  const std::unique_ptr<UpdateRule> rule = make_update_rule(config);
  const DType wide = accumulate_type(dtype);
  const size_t converted = StateLayout(layout, sharded, *rule, config, dtype).wide_bytes(wide);
  if (!rule->takes_matrices()) return converted;
  return converted + MatrixPlan(layout, sizes, coords, sharded).bytes(wide);
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
      average_(config.ema),
      dtype_(accumulate_type(dtype)),
      masters_(dtype_ != dtype),
      state_(layout, grads.is_sharded(), *rule_, config, dtype),
      elements_(grads.is_sharded() ? layout.trained_shard_elements() : layout.trained_elements()),
      numbers_(ops, layout.params().size()) {
  find_factors(config);
  const size_t bytes = state_.bytes();
  if (weights.state_on_host())
    buffer_ = Buffer::shared(bytes, ops.device);
  else if (weights.offload().empty())
    buffer_ = Buffer(bytes, ops.device);
  else
    file_ = FileMemory(weights.offload(), bytes);
  int64_t largest = 0;
  for (const FlatLayout::Unit& unit : layout.units()) {
    segments_.push_back(grads.segments(unit));
    if (unit.frozen)
      for (const FlatLayout::Segment& segment : grads.owned(unit))
        (unit.quantized ? quantized_ : frozen_).push_back(segment);
    for (const FlatLayout::Segment& segment : segments_.back()) largest = std::max(largest, segment.count);
  }
  state_.own(segments_);
  if (state_.wide_bytes(dtype_) > 0) {
    wide_ = Buffer(state_.wide_bytes(dtype_), ops.device);
    find_rounding(seed);
  }
  if (rule_->takes_matrices())
    matrices_ = std::make_unique<WholeMatrices>(layout, mesh, grads, *rule_, ops, dtype_, stream);
  if (!rule_->needs_norms() && wide_.bytes() == 0 && weights.offload().empty())
    for (const auto& segments : segments_)
      runs_.push_back(FlatLayout::joined(
          segments, [this](ParamId a, ParamId b) { return factors_of(a) == factors_of(b); }));
  if (rule_->needs_norms())
    squares_ = Buffer::shared(static_cast<size_t>(2 * ChunkedSquares::chunks_of(largest)) * sizeof(double),
                              ops.device);
  if (masters_) {
    for (size_t unit = 0; unit < segments_.size(); ++unit)
      stream_through(unit, [&](const FlatLayout::Segment& segment) {
        initialise_segment(layout, segment, part(0, segment), seed, ops, stream);
      });
    for (const FlatLayout::Segment& segment : frozen_) {
      initialise_segment(layout, segment, weights_.owned(segment), seed, ops, stream);
      weights_.release(segment);
    }
    refresh_weights(stream);
  } else {
    weights_.initialise(seed, stream);
  }
  restart_average(stream);
}

void ShardedOptimizer::find_factors(const OptimizerConfig& config) {
  const ParamList& params = layout_.params();
  for (const ParamSpec& spec : params.specs()) {
    const std::string& name = params[spec.tied_to.value_or(params.find(spec.shard.name))].shard.name;
    factors_.push_back({spec.lr_factor * factor_of(config.lr_mult, name),
                        spec.decay ? spec.decay_factor * factor_of(config.wd_mult, name) : 0,
                        rule_->takes_matrices() && is_matrix(spec)});
  }
}

void ShardedOptimizer::find_rounding(uint64_t seed) {
  const ParamList& params = layout_.params();
  for (size_t i = 0; i < state_.size(); ++i)
    for (int index = 0; index < params.size(); ++index) {
      const ShardSpec& spec = params[params[{index}].tied_to.value_or(ParamId{index})].shard;
      RandomRounding rounding = rows_of(spec);
      rounding.key = philox_key(seed, fmt::format("{}/{}", state_[i].name, spec.name));
      rounding_.push_back(rounding);
    }
}

Tensor ShardedOptimizer::part(size_t index, const FlatLayout::Segment& segment) const {
  std::byte* const memory = file_.bytes() > 0 ? static_cast<std::byte*>(file_.data()) : buffer_.data();
  return {memory + state_.offset(index, segment), state_[index].type, {segment.count}};
}

void ShardedOptimizer::expect(const FlatLayout::Segment& segment) const {
  weights_.expect(segment);
  for (size_t i = 0; i < state_.size(); ++i) {
    if (!state_.has(i, factors_of(segment.id).matrix)) continue;
    const Tensor values = part(i, segment);
    const auto begin = static_cast<size_t>(static_cast<std::byte*>(values.data) - file_.data());
    file_.expect(begin, begin + values.bytes());
  }
}

void ShardedOptimizer::release(const FlatLayout::Segment& segment) const {
  weights_.release(segment);
  for (size_t i = 0; i < state_.size(); ++i) {
    if (!state_.has(i, factors_of(segment.id).matrix)) continue;
    const Tensor values = part(i, segment);
    const auto begin = static_cast<size_t>(static_cast<std::byte*>(values.data) - file_.data());
    file_.release(begin, begin + values.bytes());
  }
}

void ShardedOptimizer::release() const {
  if (weights_.offload().empty()) return;
  for (const auto& unit : segments_)
    for (const FlatLayout::Segment& segment : unit) release(segment);
  for (const auto& segments : {frozen_, quantized_})
    for (const FlatLayout::Segment& segment : segments) weights_.release(segment);
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
  slice.matrix = factors_of(segment.id).matrix;
  for (size_t i = 0; i < rule_->state_names().size(); ++i)
    if (rule_->has_state(i, slice.matrix)) slice.state.push_back(part(i + (masters_ ? 1 : 0), segment));
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
    const ParamId id{static_cast<int>(param)};
    const StepValues mine = values_of(id, values);
    return factors_of(id).matrix ? rule_->matrix_numbers(decay_of(id), mine)
                                 : rule_->numbers(decay_of(id), mine);
  });
}

StepValues ShardedOptimizer::values_of(ParamId id, StepValues values) const {
  if (!ratios_.empty()) values.trust_ratio = ratios_[static_cast<size_t>(id.index)];
  values.lr *= factors_of(id).lr;
  return values;
}

void ShardedOptimizer::direct_unit(size_t unit, int version, const StepValues& values, Stream& stream) {
  if (!matrices_) return;
  for (const FlatLayout::Segment& segment : segments_[unit])
    if (factors_of(segment.id).matrix) rule_->direct(slice_of(segment, version), values, ops_, stream);
  matrices_->orthogonalise(unit, stream);
}

// Converts state that is stored in 16 or 8 bits for the update, and rounds it at random afterwards, by step and by the place
// in the whole parameter, so that the bits depend neither on slices nor on tensor ranks.
void ShardedOptimizer::update_narrow(const FlatLayout::Segment& segment, int version,
                                     const StepValues& values, Stream& stream) {
  constexpr uint32_t kStepStride = 0x85EBCA6BU;
  const int64_t window = std::min(elements_, kNarrowWindow);
  for (int64_t begin = 0; begin < segment.count; begin += window) {
    const FlatLayout::Segment now = part_of(segment, begin, begin + window);
    Slice slice = slice_of(now, version);
    const SmallList<Tensor, 2> stored = slice.state;
    std::byte* wide = wide_.data();
    for (size_t i = 0; i < stored.size(); ++i) {
      if (stored[i].dtype == dtype_) continue;
      slice.state[i] = {wide, dtype_, {now.count}};
      wide += static_cast<size_t>(window) * size_of(dtype_);
      if (stored[i].dtype == DType::U8)
        ops_.widen_small(stream, slice.state[i], stored[i], rule_->stored_format(i));
      else
        ops_.convert(stream, slice.state[i], stored[i]);
    }
    rule_->update(slice, values, ops_, stream);
    for (size_t i = 0; i < stored.size(); ++i) {
      if (stored[i].dtype == dtype_) continue;
      const size_t tensor = i + (masters_ ? 1 : 0);
      RandomRounding rounding = rounding_[tensor * factors_.size() + static_cast<size_t>(now.id.index)];
      rounding.key.lo += static_cast<uint32_t>(values.step) * kStepStride;
      rounding.first = now.first;
      rounding.format = rule_->stored_format(i);
      ops_.round_randomly(stream, stored[i], slice.state[i], rounding);
    }
  }
}

Tensor ShardedOptimizer::average(const FlatLayout::Segment& segment) const {
  return part(state_.size() - 1, segment);
}

void ShardedOptimizer::update_average(const FlatLayout::Segment& segment, int version, Stream& stream) {
  if (!average_) return;
  const Tensor mean = average(segment);
  const Tensor weight = masters_ ? part(0, segment) : weights_.owned(segment, version);
  Map add;
  add.op = MapOp::Add;
  add.a = 1 - *average_;
  add.box = {1, {segment.count}};
  add.from = {contiguous_view(add.box), contiguous_view(add.box)};
  const std::array<Tensor, 2> terms{mean, weight};
  ops_.scale(stream, mean, *average_);
  ops_.map(stream, mean, terms, add);
}

void ShardedOptimizer::restart_average(Stream& stream) {
  if (!average_) return;
  for (size_t unit = 0; unit < segments_.size(); ++unit)
    stream_through(unit, [&](const FlatLayout::Segment& segment) {
      ops_.copy(stream, average(segment), masters_ ? part(0, segment) : weights_.owned(segment));
      if (file_.bytes() > 0) stream.synchronize();
    });
}

void ShardedOptimizer::update_unit(size_t unit, int version, const StepValues& values, Stream& stream) {
  const auto update = [&](const FlatLayout::Segment& segment) {
    const StepValues mine = values_of(segment.id, values);
    if (wide_.bytes() > 0)
      update_narrow(segment, version, mine, stream);
    else
      rule_->update(slice_of(segment, version), mine, ops_, stream);
    update_average(segment, version, stream);
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
    direct_unit(unit, version, values, stream);
    update_unit(unit, version, values, stream);
    if (grads_.is_sharded() && !layout_.units()[unit].frozen)
      weights_.publish(layout_.units()[unit], version, stream);
  }
  weights_.end_update(stream);
}

std::vector<ShardedOptimizer::Piece> ShardedOptimizer::pieces() const {
  std::vector<Piece> pieces;
  for (const auto& unit : segments_)
    for (const FlatLayout::Segment& segment : unit) {
      if (!masters_) pieces.push_back({"param", segment, weights_.owned(segment)});
      for (size_t i = 0; i < state_.size(); ++i)
        if (state_.has(i, factors_of(segment.id).matrix))
          pieces.push_back({state_[i].name, segment, part(i, segment)});
    }
  for (const FlatLayout::Segment& segment : frozen_)
    pieces.push_back({"param", segment, weights_.owned(segment)});
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
