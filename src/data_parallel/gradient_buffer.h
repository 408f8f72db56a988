// GradientBuffer: all gradients of a rank in one allocation (GradLayout); layers see views. Units are summed over the
// ranks on the communication stream while backward continues: once per step, or after each micro-batch.
//
// Each gradient is summed over exactly the axes in its ShardSpec::partial: first over the axes that are not data axes
// (the tensor axis for norms, biases and positions under sequence parallelism; the ranks that share a key head), then
// over the data axes of its unit. If every rank needs the whole sum, this is an all-reduce; if it needs only its slice
// (ZeRO), a reduce-scatter, which adds in the same order, so a slice has the bits of the whole sum. Sums over the data
// axes may be sent in bf16 (DataSums).
//
// Gradients that a layer writes are never cleared: the first write of a step assigns (GradSink::begun). A gradient that
// no layer has written is set to zero at its reduction. Padding between gradients is always zero.
//
// A transient unit (GradLayout) is opened, with none of its gradients begun, when a block is about to add to it, and
// closed by its reduction, which adds this rank's slice of the sum to the sums of earlier reductions. A reduction
// includes all gradients added until then, also of later micro-batches. Between sharding groups only these sums are
// sent, once, after the last reduction of the step.
//
// A tied use of a parameter (the output head) may have a separate gradient. It is added to its original's gradient
// once, when the original's unit is reduced; also on a single rank, so that cutting the model into stages does not
// change the bits. If the two uses are on two ranks, each holds a copy of the weight; `reduce_tied` adds the two
// gradients over a communicator of both (Ties), so that both ranks make the same update.
#pragma once

#include <map>
#include <vector>

#include "data_parallel/data_groups.h"
#include "data_parallel/data_sums.h"
#include "data_parallel/grad_layout.h"
#include "nn/param.h"
#include "ops/ops.h"

namespace trifold {

// For each tied weight of which this rank holds one use: the communicator of the two ranks that hold its uses, first
// stage first, by the index of the second use.
using Ties = std::map<int, Communicator*>;

class GradientBuffer final : public GradSink {
 public:
  struct Options {
    bool slices = false;  // every rank needs only its slice of the sums; always so for transient units
    int reductions = 1;   // reductions of a transient unit in a step
    bool bf16 = false;    // sums over the data axes are sent in bf16; needs GradLayout::add_work
  };

  // References must outlive the buffer; reductions run on `comm_stream`.
  GradientBuffer(const FlatLayout& layout, GradLayout grad_layout, const DataGroups& groups,
                 const OpTable& ops, DType dtype, const Options& options, Stream& comm_stream,
                 Ties ties = {});

  // Waits for reductions in flight, which use this memory.
  ~GradientBuffer() override;
  GradientBuffer(const GradientBuffer&) = delete;
  GradientBuffer& operator=(const GradientBuffer&) = delete;

  Tensor grad(ParamId id) const override { return views_[static_cast<size_t>(id.index)]; }
  bool trains(ParamId id) const override { return !params_[id].frozen; }
  bool begun(ParamId id) const override { return begun_[region_of(id)]; }
  void set_begun(ParamId id, bool begun) override { begun_[region_of(id)] = begun; }
  void open(int block, Stream& stream) override;
  void reduce(int block, Stream& stream) override;
  void reduce_tied(Stream& stream) override;

  // Whether this rank has only its slice of each unit's sums.
  bool is_sharded() const { return options_.slices; }
  // The number of slices into which the sums of a parameter are sharded; 1 if each rank has whole sums.
  int slices(ParamId id) const { return options_.slices ? unit_at(layout_.unit_of(id)).slices : 1; }
  // The segments of a unit whose sums are on this rank: the segments of its slice, or all; none of a frozen unit.
  std::vector<FlatLayout::Segment> segments(const FlatLayout::Unit& unit) const;
  // The segments of a unit, frozen or not, whose weights this rank owns: its slice, or all.
  std::vector<FlatLayout::Segment> owned(const FlatLayout::Unit& unit) const;
  // The sums of one of these segments.
  Tensor summed(const FlatLayout::Segment& segment) const;

  // Warm-up of the device: performs an addition as reductions do, on this rank alone. Gradients are undefined
  // afterwards.
  void rehearse(Stream& stream);
  // Changes Options::reductions, between steps.
  void set_reductions(int reductions) { options_.reductions = reductions; }
  // Begins a step: no gradient is begun, and padding is zero.
  void restart(Stream& stream);
  // Makes `stream` wait for all reductions started so far; gradients that were never begun become zero. Throws
  // if gradients were added after their last reduction.
  void finish(Stream& stream);
  size_t bytes() const { return buffer_.bytes(); }

 private:
  // The state of a transient unit.
  struct Transient {
    bool open = false;
    int opened = 0;   // times in this step
    int reduced = 0;  // times in this step
  };

  // The index of the gradient in begun_. Two uses of a weight that share memory have the same index.
  size_t region_of(ParamId id) const;
  // Sets a gradient, or all gradients of a unit, to zero if they were not begun.
  void settle(ParamId id, Stream& stream);
  void settle_unit(int unit, Stream& stream);
  // Sets the padding of a unit to zero, including small gradients between two gaps.
  void clear_padding(int unit, Stream& stream);
  void sum_over_ranks(int unit, Stream& stream);
  void pass(int unit, Stream& stream);
  void sum_first(int unit);
  const FlatLayout::Unit& unit_at(int unit) const { return layout_.units()[static_cast<size_t>(unit)]; }
  DataSums data_sums() const;
  Tensor flat() const { return buffer_.tensor(dtype_, {grad_layout_.elements()}); }
  Tensor unit_memory(int unit) const;
  // This rank's slice in the whole unit's memory.
  Tensor slice_memory(int unit) const;
  Tensor slice_sums(int unit) const;

  const FlatLayout& layout_;
  const ParamList& params_;
  GradLayout grad_layout_;
  const DataGroups& groups_;
  const OpTable& ops_;
  DType dtype_;
  Options options_;
  Stream& comm_stream_;
  Ties ties_;
  Buffer buffer_;
  DataSums sums_;
  std::vector<Tensor> views_;
  std::vector<bool> begun_;  // [region_of(id)]
  bool padded_ = false;      // the padding of units that are not transient is zero and stays zero
  std::vector<std::vector<int>> passing_;  // [block] transient units that the block adds to
  std::vector<Transient> transients_;      // by unit; unused for units that are not transient
  std::vector<Event> spare_;  // by shared buffer: completes with the last reduction that reads it
};

}  // namespace trifold
