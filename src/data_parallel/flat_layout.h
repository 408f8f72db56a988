// FlatLayout: the layout of a rank's flat buffers of weights, gradients and optimizer state, and the parts that the
// rank owns. All three have the same layout, so slices always coincide.
//
//   unit      parameters that are reduced, published and, if sharded, gathered as a whole: consecutive blocks of a
//             stage, in the order of backward, until a collective has enough elements to run at memory speed. Parameters
//             of these blocks that are summed over other data axes (ShardSpec::data_axes) form separate units.
//   slice     an equal part of a unit, one for each rank of a sharding group (Rajbhandari et al., "ZeRO", SC 2020)
//   segment   the part of one parameter that is in a given slice or unit
//
// Frozen parameters (ParamSpec::frozen) form units of their own, which are only published and gathered. They follow all
// others in the flat buffers, so that the buffers of gradients and optimizer state, which do not have them, are
// prefixes of the layout. Quantized ones (ParamSpec::quantized) are units of their own too, behind these: their elements
// are bytes.
//
// Parameters and slices begin at multiples of kGrain elements, so a sum in chunks of kGrain elements has the same
// chunks for any number of ranks.
#pragma once

#include <algorithm>
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

// The blocks of a stage that complete a unit, after which a plan reduces, as indices into the stage, last block first.
// `blocks` are the model's blocks of the stage, ascending.
std::vector<int> unit_ends(const ParamList& params, const std::vector<int>& blocks, int64_t unit_elements);

// The number of slices into which gradients summed over the axes `data` are sharded, if gradients summed over kDataAxes
// are sharded over groups of `group` ranks: the ranks along `data` are cut into the same number of groups. If that is
// not possible, it is 1: every rank holds whole units.
int slices_of(AxisSet data, const MeshSizes& sizes, int group);

class FlatLayout {
 public:
  // Elements [begin, end) of the flat buffers whose gradients are summed over `ranks` before the data axes.
  struct Part {
    RankSet ranks;
    int64_t begin = 0;
    int64_t end = 0;
  };

  struct Unit {
    int lowest_block = kCopyOfTied;  // the block that completes it
    AxisSet data;                    // its gradients are summed over these axes last, and sharded over them
    int slices = 1;                  // one for each rank of a sharding group
    int groups = 1;                  // sharding groups along `data`, each of which holds all slices
    bool frozen = false;             // its parameters have no gradients
    bool quantized = false;          // frozen too; its elements are bytes
    int64_t begin = 0;               // elements of the flat buffers
    int64_t end = 0;
    int64_t shard_begin = 0;  // offset of one rank's slice in buffers that hold only slices
    std::vector<Part> first;  // the parts that are first summed over other axes
    std::vector<ParamId> params;

    int64_t elements() const { return end - begin; }
    int64_t slice_elements() const { return elements() / slices; }
  };

  // Elements [first, first + count) of a parameter's local box, in memory order; of a quantized parameter, bytes of its
  // storage.
  struct Segment {
    ParamId id;
    int64_t first = 0;
    int64_t count = 0;
    int64_t flat = 0;   // index into the flat buffers
    int64_t shard = 0;  // index into a buffer of slices; valid only if the segment is in one slice
  };

  // Lays out the parameters in `list`. `stages` are the model's blocks of each stage of this rank, ascending. Units are
  // sharded over groups of `group` ranks on the data axes of a mesh of `sizes`.
  FlatLayout(ParamList list, const std::vector<std::vector<int>>& stages, int64_t unit_elements,
             const MeshSizes& sizes, int group);

  const ParamList& params() const { return params_; }
  const std::vector<Unit>& units() const { return units_; }
  int64_t elements() const { return elements_; }
  // Elements of one slice of every unit together, and of the largest slice.
  int64_t shard_elements() const { return shard_elements_; }
  // Elements of trained units, which come first, and of one slice of each.
  int64_t trained_elements() const { return trained_elements_; }
  int64_t trained_shard_elements() const { return trained_shard_elements_; }
  // Elements before the quantized units, which come last, with one slice of each unit.
  int64_t plain_elements() const { return plain_elements_; }
  int64_t plain_shard_elements() const { return plain_shard_elements_; }
  // Bytes of elements [begin, end) of the flat buffers, or of the buffers of slices, if weights have the type `dtype`.
  size_t bytes(int64_t begin, int64_t end, DType dtype) const {
    return bytes_around(plain_elements_, begin, end, dtype);
  }
  size_t shard_bytes(int64_t begin, int64_t end, DType dtype) const {
    return bytes_around(plain_shard_elements_, begin, end, dtype);
  }
  size_t unit_bytes(const Unit& unit, DType dtype) const { return bytes(unit.begin, unit.end, dtype); }
  // Bytes of the largest slice.
  size_t largest_slice_bytes(DType dtype) const;
  // The index in the flat buffers of a parameter that is stored on this rank.
  int64_t offset(ParamId id) const { return offsets_[static_cast<size_t>(id.index)]; }
  // The index of the unit with the values of a parameter that is held on this rank; for a tied use, its original's
  // unit.
  int unit_of(ParamId id) const { return unit_of_[static_cast<size_t>(id.index)]; }
  // The units that `block` completes, as indices [first, second). Throws if it completes none.
  std::pair<int, int> units_ending_at(int block) const;
  // Indices of the units whose weights a block reads.
  std::span<const int> units_of_block(int block) const {
    const auto index = static_cast<size_t>(block);
    if (index >= units_of_block_.size()) return {};  // a block without parameters after all that have some
    return units_of_block_[index];
  }
  // The index in the flat buffers at which a slice begins.
  int64_t slice_begin(const Unit& unit, int slice) const {
    return unit.begin + slice * unit.slice_elements();
  }
  // Whether the unit holds a weight whose other use is on another rank.
  bool tied_elsewhere(const Unit& unit) const;
  // The segments of parameters in a slice of a unit, or in the whole unit, in order.
  std::vector<Segment> segments(const Unit& unit, std::optional<int> slice) const;
  // Joins segments of a unit that are contiguous except for padding, and `alike`, into one segment with the id of the
  // first. Padding is zero in gradients, weights and optimizer state, and stays zero.
  static std::vector<Segment> joined(std::span<const Segment> segments,
                                     FunctionRef<bool(ParamId, ParamId)> alike);
  // One view for each parameter into `trained`, which has trained_elements() elements, `frozen`, which has the others up
  // to plain_elements(), or `quantized`, which has the rest; an empty tensor if it is not held.
  std::vector<Tensor> views(Tensor trained, Tensor frozen, Tensor quantized) const;

 private:
  void add_units(int lowest_block, const std::vector<ParamId>& ids);
  // What decides which parameters may share a unit.
  struct Group {
    AxisSet data;
    bool frozen = false, quantized = false;
    bool operator==(const Group&) const = default;
  };
  void add_unit(int lowest_block, const Group& group, std::vector<ParamId> ids);
  void place_units(bool frozen, bool quantized);
  static size_t bytes_around(int64_t plain, int64_t begin, int64_t end, DType dtype) {
    const int64_t wide = std::min(end, plain) - std::min(begin, plain);
    return static_cast<size_t>(wide) * size_of(dtype) + static_cast<size_t>(end - begin - wide);
  }
  void find_units_of_blocks();

  ParamList params_;
  MeshSizes sizes_;
  int group_;
  std::vector<Unit> units_;
  std::vector<int64_t> offsets_;  // by parameter
  std::vector<int> unit_of_;
  std::vector<std::vector<int>> units_of_block_;
  int64_t elements_ = 0, trained_elements_ = 0, plain_elements_ = 0;
  int64_t shard_elements_ = 0, trained_shard_elements_ = 0, plain_shard_elements_ = 0;
};

}  // namespace trifold
