// FlatLayout: where each parameter of a rank is in its flat buffers of weights, gradients and optimizer
// state, and which part of them the rank owns. All three share one layout, so slices always coincide.
//
// Parameters are grouped in *units*: the blocks of a stage, in the order of backward, until there are enough
// elements for a collective to run at memory speed. Parameters of the same blocks that are summed over other
// data axes (ShardSpec::data_axes) form separate units. A unit is reduced, published and, with sharded
// parameters, gathered as a whole. It is cut into equal slices, one for each rank of a sharding group
// (Rajbhandari et al., "ZeRO", SC 2020). Parameters and slices begin at multiples of kGrain elements, so a
// sum of kGrain-sized chunks has the same chunks however many ranks share a unit.
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
constexpr int64_t kUnitElements = int64_t{4} << 20;  // a unit has at least this many, unless its stage ends

// The blocks of a stage that complete a unit, as indices into the stage, last block first: a plan reduces
// after them. `blocks` are the model's blocks of the stage, ascending.
std::vector<int> unit_ends(const ParamList& params, const std::vector<int>& blocks, int64_t unit_elements);

// The number of slices that gradients summed over the axes `data` are sharded into, where those of kDataAxes are
// sharded over groups of `group` ranks: the ranks along `data` are cut into as many groups. Where that is not
// possible it is 1, and every rank holds all of them.
int slices_of(AxisSet data, const MeshSizes& sizes, int group);

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
    int slices = 1;                  // equal parts, one for each rank that shares the unit
    int groups = 1;                  // of ranks along `data` that each hold all slices
    int64_t begin = 0;               // elements of the flat buffers
    int64_t end = 0;
    int64_t shard_begin = 0;  // of one rank's slice, in buffers that hold slices only
    std::vector<Part> first;  // the parts that are summed over other axes first
    std::vector<ParamId> params;

    int64_t elements() const { return end - begin; }
    int64_t slice_elements() const { return elements() / slices; }
  };

  // Elements [first, first + count) of a parameter's local box, in memory order.
  struct Segment {
    ParamId id;
    int64_t first = 0;
    int64_t count = 0;
    int64_t flat = 0;   // index into the flat buffers
    int64_t shard = 0;  // index into a buffer of slices; valid only if the segment belongs to one rank
  };

  // Lays out the parameters in `list`. `stages` are the model's blocks of each stage of this rank, ascending; its units
  // are sharded over `group` ranks of the data axes of a mesh of `sizes`.
  FlatLayout(ParamList list, const std::vector<std::vector<int>>& stages, int64_t unit_elements,
             const MeshSizes& sizes, int group);

  const ParamList& params() const { return params_; }
  const std::vector<Unit>& units() const { return units_; }
  int64_t elements() const { return elements_; }
  // Elements of one slice of each unit, and of the largest unit's slice.
  int64_t shard_elements() const { return shard_elements_; }
  int64_t largest_slice() const;
  // The index of a parameter that is stored here, in the flat buffers.
  int64_t offset(ParamId id) const { return offsets_[static_cast<size_t>(id.index)]; }
  // Index of the unit with the values of a parameter that is held here; if it is tied, that of its original.
  int unit_of(ParamId id) const { return unit_of_[static_cast<size_t>(id.index)]; }
  // The units that `block` completes, as indices [first, second); an Error if it completes none.
  std::pair<int, int> units_ending_at(int block) const;
  // The units with the weights that a block reads.
  const std::vector<int>& units_of_block(int block) const {
    return units_of_block_.at(static_cast<size_t>(block));
  }
  // The begin of a unit's slice, as an index into the flat buffers.
  int64_t slice_begin(const Unit& unit, int slice) const {
    return unit.begin + slice * unit.slice_elements();
  }
  // Whether the unit holds a weight whose other use is on another rank.
  bool tied_elsewhere(const Unit& unit) const;
  // The segments of parameters in a slice of a unit, or in the whole unit, in order.
  std::vector<Segment> segments(const Unit& unit, std::optional<int> slice) const;
  // Joins segments of a unit into few runs: segments that are contiguous except for padding, and `alike`,
  // become one, with the id of its first. Padding is zero in gradients, weights and optimizer state, and
  // stays zero.
  static std::vector<Segment> joined(std::span<const Segment> segments,
                                     FunctionRef<bool(ParamId, ParamId)> alike);
  // One view per parameter into `flat`, which has elements() elements; an empty tensor for parameters that
  // are not held.
  std::vector<Tensor> views(Tensor flat) const;

 private:
  void add_units(int lowest_block, const std::vector<ParamId>& ids);
  void add_unit(int lowest_block, AxisSet data, std::vector<ParamId> ids);
  void find_units_of_blocks();

  ParamList params_;
  MeshSizes sizes_;
  int group_;
  std::vector<Unit> units_;
  std::vector<int64_t> offsets_;  // of each parameter
  std::vector<int> unit_of_;
  std::vector<std::vector<int>> units_of_block_;
  int64_t elements_ = 0;
  int64_t shard_elements_ = 0;
};

}  // namespace trifold
