#include "data_parallel/gradient_buffer.h"

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

// Blocks are visited in the order of backward. Tied uses are placed last: they belong to no bucket.
void GradientBuffer::lay_out(const ParamList& params, int blocks, size_t bucket_bytes) {
  offsets_.resize(static_cast<size_t>(params.size()));
  const auto place = [&](int index) {
    offsets_[static_cast<size_t>(index)] = elements_;
    elements_ += aligned(params[{index}].shard.local.elements());
  };
  Bucket open{0, 0, 0, {}};
  for (int block = blocks - 1; block >= 0; --block) {
    for (int i = 0; i < params.size(); ++i)
      if (params[{i}].block == block && !params[{i}].tied_to) place(i);
    const auto bytes = static_cast<size_t>(elements_ - open.begin) * size_of(dtype_);
    if (bytes < bucket_bytes && block != 0) continue;
    open.last_block = block;
    open.end = elements_;
    buckets_.push_back(open);
    bucket_ends_.push_back(block);
    open = {0, elements_, 0, {}};
  }
  for (int i = 0; i < params.size(); ++i) {
    if (!params[{i}].tied_to) continue;
    place(i);
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
    if (mesh_.size(Axis::Dp) == 1) return;
    comm_stream_.wait(stream.record());
    const Tensor all = buffer_.tensor(dtype_, {elements_});
    mesh_.comm({Axis::Dp}).all_reduce(all.rows(bucket.begin, bucket.end), Reduce::Sum, comm_stream_);
    return;
  }
  fail("block {} does not complete a bucket of gradients", block);
}

void GradientBuffer::zero(Stream& stream) { ops_.fill(stream, buffer_.tensor(dtype_, {elements_}), 0.0); }

void GradientBuffer::finish(Stream& stream) { stream.wait(comm_stream_.record()); }

}  // namespace trifold
