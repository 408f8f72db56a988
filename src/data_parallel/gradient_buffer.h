// GradientBuffer: all gradients of a rank in one buffer (GradLayout); layers see views. A unit of it is
// summed over the ranks on the communication stream while backward goes on: once a step, or after each
// micro-batch.
//
// Each gradient is summed over exactly the axes in its ShardSpec::partial: first over those that are no data
// axes (norms, biases and positions under sequence parallelism, over the tensor axis; key heads that several
// ranks share, over these), then over the data axes of its unit.
// Where every rank needs all of the sum that is an all-reduce; where it needs its slice only (ZeRO), a
// reduce-scatter, which adds in the same order: the bits of a slice are those of the whole. Over the data
// axis sums may travel in bf16 (DataSums).
//
// No gradient is set to zero that a layer writes: the first write of a step assigns it (GradSink::begun).
// What no layer has written by its reduction becomes zero then. Padding between gradients is zero always.
//
// A unit that passes (GradLayout) is opened, with none of its gradients begun, when a block is about to add
// to it, and closed by its reduction, which adds this rank's slice of the sum to what the micro-batches
// before it gave. What a later micro-batch has added by then goes with it. Between sharding groups only these
// sums travel, once, after the last reduction of the step.
//
// A tied use of a parameter (the output head) may have its gradient apart. It is added to the gradient of the
// parameter it is tied to once, when that parameter's unit is reduced; on one rank too, so that cutting the
// model into stages does not change the bits. Where the two uses are on two ranks, each holds a copy of the
// weight; `reduce_tied` adds up the two gradients over a communicator of the two, so that both ranks make the
// same update.
#pragma once

#include <vector>

#include "data_parallel/data_groups.h"
#include "data_parallel/data_sums.h"
#include "data_parallel/grad_layout.h"
#include "nn/param.h"
#include "ops/ops.h"

namespace trifold {

class GradientBuffer final : public GradSink {
 public:
  struct Options {
    bool slices = false;  // every rank needs its slice of the sums only; so it is where units pass
    int reductions = 1;   // of a unit that passes, in a step
    bool bf16 = false;    // sums over the data axis travel in bf16; the layout has work space for that
  };

  // `ties` is over the two ranks that hold the uses of the tied weight, first stage first; null where one
  // rank holds both or this one holds none. References must outlive the buffer; `comm_stream` carries the
  // reductions.
  GradientBuffer(const FlatLayout& layout, GradLayout where, const DataGroups& groups, const OpTable& ops,
                 DType dtype, const Options& options, Stream& comm_stream, Communicator* ties = nullptr);

  // Waits for reductions under way: they use this memory.
  ~GradientBuffer() override;
  GradientBuffer(const GradientBuffer&) = delete;
  GradientBuffer& operator=(const GradientBuffer&) = delete;

  Tensor grad(ParamId id) const override { return views_[static_cast<size_t>(id.index)]; }
  bool begun(ParamId id) const override { return begun_[region_of(id)]; }
  void set_begun(ParamId id, bool begun) override { begun_[region_of(id)] = begun; }
  void open(int block, Stream& stream) override;
  void reduce(int block, Stream& stream) override;
  void reduce_tied(Stream& stream) override;

  // Whether this rank has only its slice of each unit's sums; the layout says which ranks have the others.
  bool shared_out() const { return options_.slices; }
  // How many ranks have slices of their own of the sums of a parameter: 1 where each has all of them.
  int slices(ParamId id) const { return options_.slices ? unit_at(layout_.unit_of(id)).slices : 1; }
  // What is summed here of a unit: this rank's slice or all of it.
  std::vector<FlatLayout::Segment> segments(const FlatLayout::Unit& unit) const;
  // The sums of a segment of that.
  Tensor summed(const FlatLayout::Segment& segment) const;

  // Adds as reductions do, on this rank alone, so that a device has met it. Gradients are worth nothing then.
  void rehearse(Stream& stream);
  // A step begins: no gradient is begun, and padding is zero.
  void restart(Stream& stream);
  // Makes `stream` wait until all reductions started so far are done; gradients that were never begun become
  // zero. An Error when gradients were added that no reduction has taken.
  void finish(Stream& stream);
  size_t bytes() const { return buffer_.bytes(); }

 private:
  // Of a unit that passes.
  struct Passage {
    bool open = false;
    int opened = 0;   // times in this step
    int reduced = 0;  // the same
  };

  // Where the gradient is counted as begun: with the other use of a weight that it lies together with.
  size_t region_of(ParamId id) const;
  // Sets to zero what was not begun: a gradient, or all of a unit.
  void settle(ParamId id, Stream& stream);
  void settle_unit(int unit, Stream& stream);
  // Sets the padding of a unit to zero; where parameters between are small, with them.
  void clear_padding(int unit, Stream& stream);
  void sum_over_ranks(int unit, Stream& stream);
  void pass(int unit, Stream& stream);
  void sum_first(int unit);
  const FlatLayout::Unit& unit_at(int unit) const { return layout_.units()[static_cast<size_t>(unit)]; }
  DataSums data_sums() const;
  Tensor flat() const { return buffer_.tensor(dtype_, {where_.elements()}); }
  Tensor unit_memory(int unit) const;
  // This rank's slice of the unit where it lies whole.
  Tensor slice_memory(int unit) const;
  Tensor slice_sums(int unit) const;

  const FlatLayout& layout_;
  const ParamList& params_;
  GradLayout where_;
  const DataGroups& groups_;
  const OpTable& ops_;
  DType dtype_;
  Options options_;
  Stream& comm_stream_;
  Communicator* ties_;
  Buffer buffer_;
  DataSums sums_;
  std::vector<Tensor> views_;
  std::vector<bool> begun_;                // [region_of(id)]
  bool padded_ = false;                    // padding of what does not pass is zero, and stays so
  std::vector<std::vector<int>> passing_;  // [block] units that pass and that it adds to
  std::vector<Passage> passages_;          // of each unit
  std::vector<Event> spare_;               // of each place: when the reduction that read it last is done
};

}  // namespace trifold
