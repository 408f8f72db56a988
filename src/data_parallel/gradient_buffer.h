// GradientBuffer: all gradients of a rank in one flat buffer (FlatLayout); layers see views. A unit of it is
// summed over the ranks on the communication stream while backward goes on.
//
// Each gradient is summed over exactly the axes in its ShardSpec::partial: over the tensor axis first where
// it is partial there (norms, biases and positions under sequence parallelism), then over the data axis.
// Where every rank needs all of the sum that is an all-reduce; where it needs its slice only (ZeRO), a
// reduce-scatter, which adds in the same order: the bits of a slice are those of the whole.
//
// A tied use of a parameter (the output head) has its gradient in a part of its own behind the units. It is
// added to the gradient of the parameter it is tied to once, when that parameter's unit is reduced; on one
// rank too, so that cutting the model into stages does not change the bits. Where the two uses are on two
// ranks, each holds a copy of the weight; `reduce_tied` adds up the two gradients over a communicator of the
// two, so that both ranks make the same update.
#pragma once

#include <vector>

#include "data_parallel/data_groups.h"
#include "data_parallel/flat_layout.h"
#include "nn/param.h"
#include "ops/ops.h"

namespace trifold {

class GradientBuffer final : public GradSink {
 public:
  // `slices`: every rank needs its slice of the sums only. `ties` is over the two ranks that hold the uses of
  // the tied weight, first stage first; null where one rank holds both or this one holds none. References
  // must outlive the buffer; `comm_stream` carries the reductions.
  GradientBuffer(const FlatLayout& layout, const DataGroups& groups, const OpTable& ops, DType dtype,
                 bool slices, Stream& comm_stream, Communicator* ties = nullptr);

  // Waits for reductions under way: they use this memory.
  ~GradientBuffer() override;
  GradientBuffer(const GradientBuffer&) = delete;
  GradientBuffer& operator=(const GradientBuffer&) = delete;

  Tensor grad(ParamId id) const override { return views_[static_cast<size_t>(id.index)]; }
  void reduce(int block, Stream& stream) override;
  void reduce_tied(Stream& stream) override;

  // Which slice of each unit is summed here; all of it when absent.
  std::optional<int> slice() const;
  // The sums of a segment of it.
  Tensor summed(const FlatLayout::Segment& segment) const;

  // Sets all gradients to zero.
  void zero(Stream& stream);
  // Makes `stream` wait until all reductions started so far are done.
  void finish(Stream& stream);
  size_t bytes() const { return buffer_.bytes(); }

 private:
  void sum_over_ranks(const FlatLayout::Unit& unit, Stream& stream);
  Tensor flat() const { return buffer_.tensor(dtype_, {elements_}); }

  const FlatLayout& layout_;
  const ParamList& params_;
  const DataGroups& groups_;
  const OpTable& ops_;
  DType dtype_;
  bool slices_;
  Stream& comm_stream_;
  Communicator* ties_;
  int64_t elements_ = 0;
  Buffer buffer_;
  std::vector<Tensor> views_;
};

}  // namespace trifold
