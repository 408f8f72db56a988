#include "data_parallel/gradient_buffer.h"

#include <algorithm>
#include <utility>

namespace trifold {

GradientBuffer::GradientBuffer(const FlatLayout& layout, GradLayout grad_layout, const DataGroups& groups,
                               const OpTable& ops, DType dtype, const Options& options, Stream& comm_stream,
                               Ties ties)
    : layout_(layout),
      params_(layout.params()),
      grad_layout_(std::move(grad_layout)),
      groups_(groups),
      ops_(ops),
      dtype_(dtype),
      options_(options),
      comm_stream_(comm_stream),
      ties_(std::move(ties)),
      buffer_(static_cast<size_t>(grad_layout_.elements()) * size_of(dtype), ops.device),
      sums_(data_sums()),
      views_(grad_layout_.views(layout, flat())),
      begun_(static_cast<size_t>(layout.params().size()), false),
      transients_(layout.units().size()),
      spare_(static_cast<size_t>(grad_layout_.buffers())) {
  check(options.slices || grad_layout_.buffers() == 0,
        "units of gradients share memory, but every rank needs all of the sums");
  for (int i = 0; i < params_.size(); ++i) {
    const auto block = static_cast<size_t>(params_[{i}].block);
    const int unit = layout.unit_of({i});
    if (unit < 0 || !grad_layout_.passes(unit)) continue;
    if (passing_.size() <= block) passing_.resize(block + 1);
    std::vector<int>& units = passing_[block];
    if (std::find(units.begin(), units.end(), unit) == units.end()) units.push_back(unit);
  }
}

DataSums GradientBuffer::data_sums() const {
  if (!options_.bf16) return DataSums(ops_);
  check(dtype_ == DType::F32, "gradients in {} are not summed in bf16", name_of(dtype_));
  const Tensor work = flat().rows(grad_layout_.work_begin(),
                                  grad_layout_.work_begin() + (grad_layout_.work_elements() + 1) / 2);
  return {ops_, {work.data, DType::BF16, {grad_layout_.work_elements()}}};
}

GradientBuffer::~GradientBuffer() {
  try {
    comm_stream_.synchronize();
  } catch (...) {  // rethrown by the next wait for the stream
  }
}

std::vector<FlatLayout::Segment> GradientBuffer::segments(const FlatLayout::Unit& unit) const {
  return unit.frozen ? std::vector<FlatLayout::Segment>() : owned(unit);
}

std::vector<FlatLayout::Segment> GradientBuffer::owned(const FlatLayout::Unit& unit) const {
  return layout_.segments(unit, options_.slices ? std::optional(groups_.slice(unit.data)) : std::nullopt);
}

size_t GradientBuffer::region_of(ParamId id) const {
  const bool together = params_.local_tie(id) && !grad_layout_.apart(id);
  return static_cast<size_t>(together ? params_[id].tied_to->index : id.index);
}

void GradientBuffer::settle(ParamId id, Stream& stream) {
  if (begun(id)) return;
  ops_.fill(stream, grad(id), 0.0);
  set_begun(id, true);
}

void GradientBuffer::settle_unit(int unit, Stream& stream) {
  for (const ParamId id : unit_at(unit).params) settle(id, stream);
  for (int i = 0; i < params_.size(); ++i)
    if (grad_layout_.apart({i}) && layout_.unit_of({i}) == unit) settle({i}, stream);
}

void GradientBuffer::clear_padding(int unit, Stream& stream) {
  constexpr int64_t kSmall = int64_t{1} << 16;  // gaps up to this size are cheaper to fill than a launch
  const FlatLayout::Unit& unit_layout = unit_at(unit);
  int64_t begin = 0, end = 0;  // range of the next fill
  const auto add = [&](int64_t from, int64_t to) {
    if (from == to) return;
    if (begin < end && from - end > kSmall) {
      ops_.fill(stream, unit_memory(unit).rows(begin, end), 0.0);
      begin = end;
    }
    begin = begin < end ? begin : from;
    end = to;
  };
  int64_t at = 0;
  for (const ParamId id : unit_layout.params) {
    add(at, layout_.offset(id) - unit_layout.begin);
    at = layout_.offset(id) - unit_layout.begin + params_[id].shard.local.elements();
  }
  add(at, unit_layout.elements());
  if (begin < end) ops_.fill(stream, unit_memory(unit).rows(begin, end), 0.0);
}

Tensor GradientBuffer::unit_memory(int unit) const {
  return flat().rows(grad_layout_.begin(unit), grad_layout_.begin(unit) + unit_at(unit).elements());
}

Tensor GradientBuffer::slice_memory(int unit) const {
  const int64_t count = unit_at(unit).slice_elements();
  const int64_t begin = groups_.slice(unit_at(unit).data) * count;
  return unit_memory(unit).rows(begin, begin + count);
}

Tensor GradientBuffer::slice_sums(int unit) const {
  const int64_t begin = grad_layout_.slice_begin(unit);
  return flat().rows(begin, begin + unit_at(unit).slice_elements());
}

Tensor GradientBuffer::summed(const FlatLayout::Segment& segment) const {
  const int unit = layout_.unit_of(segment.id);
  const int64_t begin = grad_layout_.passes(unit)
                            ? grad_layout_.slice_begin(unit) + segment.shard - unit_at(unit).shard_begin
                            : grad_layout_.begin(unit) + segment.flat - unit_at(unit).begin;
  return flat().rows(begin, begin + segment.count);
}

void GradientBuffer::open(int block, Stream& stream) {
  if (static_cast<size_t>(block) >= passing_.size()) return;
  for (int unit : passing_[static_cast<size_t>(block)]) {
    Transient& state = transients_[static_cast<size_t>(unit)];
    if (state.open) continue;
    state.open = true;
    ++state.opened;
    stream.wait(spare_[static_cast<size_t>(grad_layout_.buffer(unit))]);
    clear_padding(unit, stream);
    for (const ParamId id : unit_at(unit).params) set_begun(id, false);
  }
}

void GradientBuffer::reduce(int block, Stream& stream) {
  const auto [first, end] = layout_.units_ending_at(block);
  for (int unit = first; unit < end; ++unit) {
    if (unit_at(unit).frozen) continue;
    if (!grad_layout_.passes(unit) || transients_[static_cast<size_t>(unit)].open) settle_unit(unit, stream);
    for (int i = 0; i < params_.size(); ++i) {
      if (!grad_layout_.apart({i}) || layout_.unit_of({i}) != unit) continue;
      const Tensor target = grad(*params_[{i}].tied_to);
      ops_.add(stream, target, target, grad({i}));
    }
    if (grad_layout_.passes(unit))
      pass(unit, stream);
    else
      sum_over_ranks(unit, stream);
  }
}

// Both ranks add the same two gradients. The first stage's gradient is then reduced with its unit; the other stage's
// copy is a unit that no block completes, so it is reduced here.
void GradientBuffer::reduce_tied(Stream& stream) {
  check(!ties_.empty(), "no weight of this rank is tied to another rank's");
  for (int i = 0; i < params_.size(); ++i) {
    const ParamSpec& spec = params_[{i}];
    if (!spec.tied_to || spec.frozen || params_.held({i}) == params_.held(*spec.tied_to)) continue;
    const bool copy = params_.held({i});
    settle(copy ? ParamId{i} : *spec.tied_to, stream);
    comm_stream_.wait(stream.record());
    ties_.at(i)->all_reduce(grad(copy ? ParamId{i} : *spec.tied_to), Reduce::Sum, comm_stream_);
    if (copy) sum_over_ranks(layout_.unit_of({i}), stream);
  }
}

void GradientBuffer::sum_first(int unit) {
  const FlatLayout::Unit& unit_layout = unit_at(unit);
  for (const FlatLayout::Part& part : unit_layout.first) {
    Communicator& ranks = groups_.summed_first(part.ranks);
    if (ranks.size() == 1) continue;
    ranks.all_reduce(unit_memory(unit).rows(part.begin - unit_layout.begin, part.end - unit_layout.begin),
                     Reduce::Sum, comm_stream_);
  }
}

void GradientBuffer::sum_over_ranks(int unit, Stream& stream) {
  comm_stream_.wait(stream.record());
  sum_first(unit);
  Communicator& shard = groups_.shard(unit_at(unit).data);
  Communicator& replicas = groups_.replicas(unit_at(unit).data);
  const Tensor all = unit_memory(unit);
  const Tensor slice = slice_memory(unit);
  const bool several = replicas.size() > 1;
  if (!options_.slices && !several) {
    if (shard.size() > 1) sums_.all_reduce(shard, all, comm_stream_);
    return;
  }
  if (shard.size() > 1) sums_.reduce_scatter(shard, slice, all, comm_stream_);
  if (several) sums_.all_reduce(replicas, slice, comm_stream_);
  if (!options_.slices && shard.size() > 1) sums_.all_gather(shard, all, slice, comm_stream_);
}

// The first reduction of a step assigns the kept sums, later reductions add to them. A unit without new gradients since
// its last reduction has nothing to reduce; all ranks that share it run the same plan, so they agree.
void GradientBuffer::pass(int unit, Stream& stream) {
  Transient& state = transients_[static_cast<size_t>(unit)];
  const AxisSet data = unit_at(unit).data;
  const Tensor sums = slice_sums(unit);
  comm_stream_.wait(stream.record());
  if (state.open) {
    sum_first(unit);
    const Tensor slice = state.opened == 1 ? sums : slice_memory(unit);
    sums_.reduce_scatter(groups_.shard(data), slice, unit_memory(unit), comm_stream_);
    if (state.opened > 1) ops_.add(comm_stream_, sums, sums, slice);
    spare_[static_cast<size_t>(grad_layout_.buffer(unit))] = comm_stream_.record();
    state.open = false;
  }
  if (++state.reduced == options_.reductions && groups_.replicas(data).size() > 1)
    sums_.all_reduce(groups_.replicas(data), sums, comm_stream_);
}

void GradientBuffer::rehearse(Stream& stream) {
  const Tensor some = flat().rows(0, std::min(kGrain, grad_layout_.elements()));
  ops_.add(stream, some, some, some);
}

// The first reduction assigns the sums of transient units, so nothing is cleared for them here.
void GradientBuffer::restart(Stream& stream) {
  for (size_t i = 0; i < transients_.size(); ++i) {
    transients_[i] = {};
    const int unit = static_cast<int>(i);
    if (!padded_ && !grad_layout_.passes(unit) && !unit_at(unit).frozen) clear_padding(unit, stream);
  }
  padded_ = !options_.bf16;  // bf16 sums use the memory of their inputs, padding included
  begun_.assign(begun_.size(), false);
}

void GradientBuffer::finish(Stream& stream) {
  for (size_t i = 0; i < transients_.size(); ++i) {
    check(!transients_[i].open, "unit {} got further gradients before its last reduction", i);
    const int unit = static_cast<int>(i);
    if (!grad_layout_.passes(unit) && !unit_at(unit).frozen) settle_unit(unit, stream);
  }
  stream.wait(comm_stream_.record());
}

}  // namespace trifold
