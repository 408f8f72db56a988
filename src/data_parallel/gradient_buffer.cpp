#include "data_parallel/gradient_buffer.h"

#include <map>

namespace trifold {

namespace {

constexpr int64_t kAlign = 32;  // elements: every view starts on a cache line in any dtype

int64_t aligned(int64_t elements) { return (elements + kAlign - 1) / kAlign * kAlign; }

}  // namespace

GradientBuffer::GradientBuffer(const ParamList& params, int blocks, const Mesh& mesh, const OpTable& ops,
                               DType dtype, size_t bucket_bytes, Stream& comm_stream)
    : params_(params), mesh_(mesh), ops_(ops), dtype_(dtype), comm_stream_(comm_stream) {
  lay_out(params, blocks, bucket_bytes);
  buffer_ = Buffer(static_cast<size_t>(elements_) * size_of(dtype));
  const Tensor all = buffer_.tensor(dtype, {elements_});
  for (int i = 0; i < params.size(); ++i) {
    const Shape& shape = params[{i}].shard.local.extent;
    const int64_t begin = offsets_[static_cast<size_t>(i)];
    views_.push_back(all.rows(begin, begin + shape.elements()).reshape(shape));
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
  bucket_ends_.push_back(last_block);
}

// Blocks are visited in the order of backward. Tied uses are placed last: they belong to no bucket.
void GradientBuffer::lay_out(const ParamList& params, int blocks, size_t bucket_bytes) {
  offsets_.resize(static_cast<size_t>(params.size()));
  std::vector<ParamId> open;
  size_t bytes = 0;
  for (int block = blocks - 1; block >= 0; --block) {
    for (int i = 0; i < params.size(); ++i) {
      if (params[{i}].block != block || params[{i}].tied_to) continue;
      open.push_back({i});
      bytes += static_cast<size_t>(aligned(params[{i}].shard.local.elements())) * size_of(dtype_);
    }
    if (bytes < bucket_bytes && block != 0) continue;
    close_bucket(block, open);
    open.clear();
    bytes = 0;
  }
  for (int i = 0; i < params.size(); ++i) {
    if (!params[{i}].tied_to) continue;
    place({i});
    const int64_t target = offsets_[static_cast<size_t>(params[{i}].tied_to->index)];
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
    start_sums(bucket, stream);
    return;
  }
  fail("block {} does not complete a bucket of gradients", block);
}

void GradientBuffer::start_sums(const Bucket& bucket, Stream& stream) {
  const Tensor all = buffer_.tensor(dtype_, {elements_});
  for (const Part& part : bucket.parts) {
    Communicator& ranks = mesh_.comm(part.axes);
    if (ranks.size() == 1) continue;
    comm_stream_.wait(stream.record());
    ranks.all_reduce(all.rows(part.begin, part.end), Reduce::Sum, comm_stream_);
  }
}

void GradientBuffer::zero(Stream& stream) { ops_.fill(stream, buffer_.tensor(dtype_, {elements_}), 0.0); }

void GradientBuffer::finish(Stream& stream) { stream.wait(comm_stream_.record()); }

}  // namespace trifold
