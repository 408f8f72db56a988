// FlatLayout: where each parameter of a rank lies in its flat buffers of weights, gradients and optimizer
// state, and which part of them the rank owns. One layout serves all three, so slices always coincide.
//
// Parameters are grouped in *units*: the blocks of a stage, taken in the order of backward, until there are
// enough elements for a collective to run at memory speed. Parameters that are summed over other data axes
// (ShardSpec::data_axes) are other units of the same blocks. A unit is what is reduced, published and, with
// sharded parameters, gathered at once. It is cut into equal slices, one for each rank of a sharding group
// (Rajbhandari et al., "ZeRO", SC 2020). Parameters start, and slices begin, at multiples of kGrain elements,
// so a sum that is built of kGrain-sized chunks has the same chunks however many ranks share a unit.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/function_ref.h"
#include "nn/param.h"
#include "ops/ops.h"

namespace trifold {

constexpr int64_t kGrain = kNormChunk;               // elements
constexpr int64_t kUnitElements = int64_t{4} << 20;  // a unit has at least that many, unless its stage ends

// The blocks of a stage that complete a unit, counted in the stage, last block first: where a plan reduces.
// `blocks` are the model's blocks of the stage, ascending.
std::vector<int> unit_ends(const ParamList& params, const std::vector<int>& blocks, int64_t unit_elements);

// The number of slices that gradients summed over the axes `data` are sharded into: `group` for kDataAxes,
// and 1 for any other set, which every rank holds whole.
inline int slices_of(AxisSet data, int group) { return data == kDataAxes ? group : 1; }

class FlatLayout {
 public:
  // Elements [begin, end) of the flat buffers, whose gradients are summed over `ranks` before the data axes.
  struct Part {
    RankSet ranks;
    int64_t begin = 0;
    int64_t end = 0;
  };

  struct Unit {
    int lowest_block = kCopyOfTied;  // the block that completes it
    AxisSet data;                    // its gradients are summed over these axes last, and sharded over them
    int slices = 1;                  // equal parts, one for each rank that shares it
    int64_t begin = 0;               // elements of the flat buffers
    int64_t end = 0;
    int64_t shard_begin = 0;  // of the slice of one rank in buffers that hold slices only
    std::vector<Part> first;  // what is summed over other axes first
    std::vector<ParamId> params;

    int64_t elements() const { return end - begin; }
    int64_t slice_elements() const { return elements() / slices; }
  };

  // Elements [first, first + count) of a parameter's local box in memory order.
  struct Segment {
    ParamId id;
    int64_t first = 0;
    int64_t count = 0;
    int64_t flat = 0;   // place in the flat buffers
    int64_t shard = 0;  // place in a buffer of slices; only where the segment is one rank's
  };

  // Of the parameters in `list`. `stages` are the model's blocks of each stage of this rank, ascending; its
  // units are sharded over `group` ranks of the data axes.
  FlatLayout(ParamList list, const std::vector<std::vector<int>>& stages, int64_t unit_elements, int group);

  const ParamList& params() const { return params_; }
  const std::vector<Unit>& units() const { return units_; }
  int64_t elements() const { return elements_; }
  // Of one slice of each unit, and of the largest of them.
  int64_t shard_elements() const { return shard_elements_; }
  int64_t largest_slice() const;
  // The place of a parameter that is stored here.
  int64_t offset(ParamId id) const { return offsets_[static_cast<size_t>(id.index)]; }
  // Index of the unit with the values of a parameter that is held here; of its original where it is tied.
  int unit_of(ParamId id) const { return unit_of_[static_cast<size_t>(id.index)]; }
  // The units that `block` completes, from index `first` up to `second`; an Error when it completes none.
  std::pair<int, int> units_ending_at(int block) const;
  // Units with the weights that a block reads.
  const std::vector<int>& units_of_block(int block) const {
    return units_of_block_.at(static_cast<size_t>(block));
  }
  // The slice of a unit, as elements of the flat buffers.
  int64_t slice_begin(const Unit& unit, int slice) const {
    return unit.begin + slice * unit.slice_elements();
  }
  // Whether the unit holds a weight whose other use is on another rank.
  bool tied_elsewhere(const Unit& unit) const;
  // What a slice of a unit, or all of it, holds of parameters, in order.
  std::vector<Segment> segments(const Unit& unit, std::optional<int> slice) const;
  // Segments of a unit as few runs: what follows each other with nothing but padding between, and is `alike`,
  // is one, with the id of its first. Padding is zero in gradients, weights and optimizer state, and stays
  // so.
  static std::vector<Segment> joined(std::span<const Segment> segments,
                                     FunctionRef<bool(ParamId, ParamId)> alike);
  // One view a parameter into `flat`, which has elements() elements; an empty tensor for what is not held.
  std::vector<Tensor> views(Tensor flat) const;

 private:
  void add_units(int lowest_block, const std::vector<ParamId>& ids);
  void add_unit(int lowest_block, AxisSet data, std::vector<ParamId> ids);
  void find_units_of_blocks();

  ParamList params_;
  int group_;
  std::vector<Unit> units_;
  std::vector<int64_t> offsets_;  // by parameter
  std::vector<int> unit_of_;
  std::vector<std::vector<int>> units_of_block_;
  int64_t elements_ = 0;
  int64_t shard_elements_ = 0;
};

}  // namespace trifold
