#include "data_parallel/gradient_buffer.h"

#include <algorithm>
#include <map>

namespace trifold {

namespace {

constexpr int64_t kAlign = 32;  // elements: every view starts on a cache line in any dtype

int64_t aligned(int64_t elements) { return (elements + kAlign - 1) / kAlign * kAlign; }

// Parameters of a block that own their values.
std::vector<ParamId> owned_by(const ParamList& params, int block) {
  std::vector<ParamId> ids;
  for (int i = 0; i < params.size(); ++i)
    if (params[{i}].block == block && !params[{i}].tied_to) ids.push_back({i});
  return ids;
}

}  // namespace

std::vector<int> bucket_ends(const ParamList& params, const std::vector<int>& blocks, size_t bucket_bytes,
                             DType dtype) {
  std::vector<int> ends;
  size_t bytes = 0;
  for (size_t at = blocks.size(); at-- > 0;) {
    for (ParamId id : owned_by(params, blocks[at]))
      bytes += static_cast<size_t>(aligned(params[id].shard.local.elements())) * size_of(dtype);
    if (bytes < bucket_bytes && at != 0) continue;
    ends.push_back(static_cast<int>(at));
    bytes = 0;
  }
  return ends;
}

GradientBuffer::GradientBuffer(const ParamList& params, std::vector<std::vector<int>> stages,
                               const Mesh& mesh, const OpTable& ops, DType dtype, size_t bucket_bytes,
                               Stream& comm_stream, Communicator* ties)
    : params_(params),
      mesh_(mesh),
      ops_(ops),
      dtype_(dtype),
      comm_stream_(comm_stream),
      ties_(ties),
      offsets_(static_cast<size_t>(params.size())) {
  // The gradients of later stages are complete first.
  for (size_t i = stages.size(); i-- > 0;)
    lay_out_stage(stages[i], bucket_ends(params, stages[i], bucket_bytes, dtype));
  lay_out_ties();
  buffer_ = Buffer(static_cast<size_t>(elements_) * size_of(dtype));
  const Tensor all = buffer_.tensor(dtype, {elements_});
  for (int i = 0; i < params.size(); ++i) {
    const Shape& shape = params[{i}].shard.local.extent;
    const int64_t begin = offsets_[static_cast<size_t>(i)];
    views_.push_back(params.held({i}) ? all.rows(begin, begin + shape.elements()).reshape(shape) : Tensor{});
  }
}

GradientBuffer::~GradientBuffer() {
  try {
    comm_stream_.synchronize();
  } catch (...) {  // whoever waits for the stream next is told
  }
}

void GradientBuffer::place(ParamId id) {
  offsets_[static_cast<size_t>(id.index)] = elements_;
  elements_ += aligned(params_[id].shard.local.elements());
}

// The gradients that are summed over the same axes lie together, so that each part is one collective.
void GradientBuffer::close_bucket(int last_block, const std::vector<ParamId>& ids) {
  Bucket bucket{last_block, elements_, 0, {}, {}};
  std::map<AxisSet, std::vector<ParamId>> by_axes;
  for (ParamId id : ids) by_axes[params_[id].shard.partial].push_back(id);
  for (const auto& [axes, members] : by_axes) {
    const int64_t begin = elements_;
    for (ParamId id : members) place(id);
    bucket.parts.push_back({axes, begin, elements_});
  }
  bucket.end = elements_;
  buckets_.push_back(std::move(bucket));
}

// Blocks are visited in the order of backward.
void GradientBuffer::lay_out_stage(const std::vector<int>& blocks, const std::vector<int>& ends) {
  std::vector<ParamId> open;
  for (size_t at = blocks.size(); at-- > 0;) {
    for (ParamId id : owned_by(params_, blocks[at])) open.push_back(id);
    if (std::find(ends.begin(), ends.end(), static_cast<int>(at)) == ends.end()) continue;
    close_bucket(blocks[at], open);
    open.clear();
  }
}

// Tied uses lie behind the buckets.
void GradientBuffer::lay_out_ties() {
  for (int i = 0; i < params_.size(); ++i) {
    if (!params_[{i}].tied_to || !params_.held({i})) continue;
    place({i});
    if (params_.stored({i})) continue;
    const int64_t target = offsets_[static_cast<size_t>(params_[{i}].tied_to->index)];
    for (Bucket& bucket : buckets_)
      if (bucket.begin <= target && target < bucket.end) bucket.ties.push_back({i});
  }
}

void GradientBuffer::reduce(int block, Stream& stream) {
  for (const Bucket& bucket : buckets_) {
    if (bucket.last_block != block) continue;
    for (ParamId tie : bucket.ties) {
      const Tensor target = grad(*params_[tie].tied_to);
      ops_.add(stream, target, target, grad(tie));
    }
    for (const Part& part : bucket.parts) start_sum(part, stream);
    return;
  }
  fail("block {} does not complete a bucket of gradients", block);
}

// The two ranks add the same two numbers. The first stage's gradient then goes the way of its bucket; the
// last stage's copy is in no bucket and is summed here.
void GradientBuffer::reduce_tied(Stream& stream) {
  check(ties_ != nullptr, "no weight of this rank is tied to another rank's");
  for (int i = 0; i < params_.size(); ++i) {
    const ParamSpec& spec = params_[{i}];
    if (!spec.tied_to || params_.held({i}) == params_.held(*spec.tied_to)) continue;
    const bool copy = params_.held({i});
    const Tensor mine = grad(copy ? ParamId{i} : *spec.tied_to);
    comm_stream_.wait(stream.record());
    ties_->all_reduce(mine, Reduce::Sum, comm_stream_);
    const int64_t begin = offsets_[static_cast<size_t>(i)];
    if (copy) start_sum({spec.shard.partial, begin, begin + mine.elements()}, stream);
  }
}

void GradientBuffer::start_sum(const Part& part, Stream& stream) {
  Communicator& ranks = mesh_.comm(part.axes);
  if (ranks.size() == 1) return;
  comm_stream_.wait(stream.record());
  const Tensor all = buffer_.tensor(dtype_, {elements_});
  ranks.all_reduce(all.rows(part.begin, part.end), Reduce::Sum, comm_stream_);
}

void GradientBuffer::zero(Stream& stream) { ops_.fill(stream, buffer_.tensor(dtype_, {elements_}), 0.0); }

void GradientBuffer::finish(Stream& stream) { stream.wait(comm_stream_.record()); }

}  // namespace trifold
