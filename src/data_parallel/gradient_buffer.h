// GradientBuffer: all gradients of a rank in one flat buffer, cut into buckets in the order gradients become
// ready in backward (last block first). Layers see views; a bucket is summed on the communication stream
// while backward goes on.
//
// Each gradient is summed over exactly the axes in its ShardSpec::partial: most over {dp}; under sequence
// parallelism those of norms, biases and positions over {dp, tp}. Inside a bucket the gradients with the same
// axes lie together and are one collective. The communicators of these sets carry nothing else while
// reductions are under way.
//
// A tied use of a parameter (the output head) has its gradient in a part of its own behind the buckets. It is
// added to the gradient of the parameter it is tied to once, when that parameter's bucket is reduced; on one
// rank too, so that cutting the model into stages does not change the bits. Where the two uses are on two
// ranks, each holds a copy of the weight; `reduce_tied` adds up the two gradients over a communicator of the
// two, so that both ranks make the same update.
#pragma once

#include <vector>

#include "nn/param.h"
#include "ops/ops.h"

namespace trifold {

// The blocks of a stage that complete a bucket, counted in the stage, last block first: where the plan
// reduces. `blocks` are the model's blocks of the stage, ascending. A bucket is closed by the first block
// that brings it to `bucket_bytes`, and at the front of the stage.
std::vector<int> bucket_ends(const ParamList& params, const std::vector<int>& blocks, size_t bucket_bytes,
                             DType dtype);

class GradientBuffer final : public GradSink {
 public:
  // `stages` are the model's blocks of each stage of this rank, ascending; buckets end at bucket_ends of
  // each. `ties` is over the two ranks that hold the uses of the tied weight, first stage first; null where
  // one rank holds both or this one holds none. References must outlive the buffer; `comm_stream` carries the
  // reductions.
  GradientBuffer(const ParamList& params, std::vector<std::vector<int>> stages, const Mesh& mesh,
                 const OpTable& ops, DType dtype, size_t bucket_bytes, Stream& comm_stream,
                 Communicator* ties = nullptr);

  // Waits for reductions under way: they use this memory.
  ~GradientBuffer() override;
  GradientBuffer(const GradientBuffer&) = delete;
  GradientBuffer& operator=(const GradientBuffer&) = delete;

  Tensor grad(ParamId id) const override { return views_[static_cast<size_t>(id.index)]; }
  void reduce(int block, Stream& stream) override;
  void reduce_tied(Stream& stream) override;

  // Sets all gradients to zero.
  void zero(Stream& stream);
  // Makes `stream` wait until all reductions started so far are done.
  void finish(Stream& stream);
  size_t bytes() const { return buffer_.bytes(); }

 private:
  // Gradients [begin, end) of a bucket that are summed over the same axes.
  struct Part {
    AxisSet axes;
    int64_t begin, end;
  };
  struct Bucket {
    int last_block;  // the block that completes it: the lowest
    int64_t begin, end;
    std::vector<Part> parts;
    std::vector<ParamId> ties;  // tied uses whose gradients go into this bucket
  };

  void place(ParamId id);
  void close_bucket(int last_block, const std::vector<ParamId>& ids);
  void start_sum(const Part& part, Stream& stream);
  void lay_out_stage(const std::vector<int>& blocks, const std::vector<int>& ends);
  void lay_out_ties();

  const ParamList& params_;
  const Mesh& mesh_;
  const OpTable& ops_;
  DType dtype_;
  Stream& comm_stream_;
  Communicator* ties_;
  std::vector<int64_t> offsets_;  // of each parameter, in elements
  std::vector<Bucket> buckets_;
  int64_t elements_ = 0;
  Buffer buffer_;
  std::vector<Tensor> views_;
};

}  // namespace trifold
