#include "data_parallel/gradient_buffer.h"

namespace trifold {

namespace {

// The gradient of this use is added to that of another use on the same rank.
bool is_local_tie(const ParamList& params, ParamId id) {
  return params[id].tied_to && params.held(id) && !params.stored(id);
}

}  // namespace

GradientBuffer::GradientBuffer(const FlatLayout& layout, const DataGroups& groups, const OpTable& ops,
                               DType dtype, bool slices, Stream& comm_stream, Communicator* ties)
    : layout_(layout),
      params_(layout.params()),
      groups_(groups),
      ops_(ops),
      dtype_(dtype),
      slices_(slices),
      comm_stream_(comm_stream),
      ties_(ties),
      elements_(layout.elements()) {
  for (int i = 0; i < params_.size(); ++i)
    if (is_local_tie(params_, {i})) elements_ += params_[{i}].shard.local.elements();
  buffer_ = Buffer(static_cast<size_t>(elements_) * size_of(dtype));
  views_ = layout.views(flat());
  int64_t next = layout.elements();
  for (int i = 0; i < params_.size(); ++i) {
    if (!is_local_tie(params_, {i})) continue;
    const Shape& shape = params_[{i}].shard.local.extent;
    views_[static_cast<size_t>(i)] = flat().rows(next, next + shape.elements()).reshape(shape);
    next += shape.elements();
  }
}

GradientBuffer::~GradientBuffer() {
  try {
    comm_stream_.synchronize();
  } catch (...) {  // whoever waits for the stream next is told
  }
}

std::optional<int> GradientBuffer::slice() const {
  return slices_ ? std::optional<int>(groups_.slice()) : std::nullopt;
}

Tensor GradientBuffer::summed(const FlatLayout::Segment& segment) const {
  return flat().rows(segment.flat, segment.flat + segment.count);
}

void GradientBuffer::reduce(int block, Stream& stream) {
  const int index = layout_.unit_ending_at(block);
  for (int i = 0; i < params_.size(); ++i) {
    if (!is_local_tie(params_, {i}) || layout_.unit_of({i}) != index) continue;
    const Tensor target = grad(*params_[{i}].tied_to);
    ops_.add(stream, target, target, grad({i}));
  }
  sum_over_ranks(layout_.units()[static_cast<size_t>(index)], stream);
}

// The two ranks add the same two numbers. The first stage's gradient then goes the way of its unit; the last
// stage's copy is a unit that no block completes and is summed here.
void GradientBuffer::reduce_tied(Stream& stream) {
  check(ties_ != nullptr, "no weight of this rank is tied to another rank's");
  for (int i = 0; i < params_.size(); ++i) {
    const ParamSpec& spec = params_[{i}];
    if (!spec.tied_to || params_.held({i}) == params_.held(*spec.tied_to)) continue;
    const bool copy = params_.held({i});
    comm_stream_.wait(stream.record());
    ties_->all_reduce(grad(copy ? ParamId{i} : *spec.tied_to), Reduce::Sum, comm_stream_);
    if (copy) sum_over_ranks(layout_.units()[static_cast<size_t>(layout_.unit_of({i}))], stream);
  }
}

void GradientBuffer::sum_over_ranks(const FlatLayout::Unit& unit, Stream& stream) {
  comm_stream_.wait(stream.record());
  if (groups_.tensor().size() > 1 && unit.tensor_end > unit.tensor_begin)
    groups_.tensor().all_reduce(flat().rows(unit.tensor_begin, unit.tensor_end), Reduce::Sum, comm_stream_);
  const Tensor all = flat().rows(unit.begin, unit.end);
  const int64_t begin = layout_.slice_begin(unit, groups_.slice());
  const Tensor mine = flat().rows(begin, layout_.slice_begin(unit, groups_.slice() + 1));
  const bool several = groups_.replicas().size() > 1;
  if (!slices_ && !several) {
    if (groups_.slices() > 1) groups_.shard().all_reduce(all, Reduce::Sum, comm_stream_);
    return;
  }
  if (groups_.slices() > 1) groups_.shard().reduce_scatter(mine, all, Reduce::Sum, comm_stream_);
  if (several) groups_.replicas().all_reduce(mine, Reduce::Sum, comm_stream_);
  if (!slices_ && groups_.slices() > 1) groups_.shard().all_gather(all, mine, comm_stream_);
}

void GradientBuffer::zero(Stream& stream) { ops_.fill(stream, flat(), 0.0); }

void GradientBuffer::finish(Stream& stream) { stream.wait(comm_stream_.record()); }

}  // namespace trifold
