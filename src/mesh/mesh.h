// Mesh: named axes over ranks, the mapping between ranks and coordinates, and a communicator for any set of
// axes.
//
// An axis is a direction of the mesh, a dim a direction of a tensor. The order of ranks is
// Megatron-LM's default: the tensor axis is fastest, then context and data, and the pipeline axis is slowest.
//
// The same ranks form two grids. The dense grid is tp x cp x dp x pp; the expert grid, for parameters that only some
// tokens use, is etp x ep x edp x pp. A pipeline stage has the same ranks in both grids, tp * cp * dp = etp * ep * edp,
// in the same order, so no data move between grids (parallel folding; Liu et al., arXiv 2504.14960). A set of axes
// belongs to one grid; pp is in both.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "comm/communicator.h"
#include "core/sequence_rows.h"

namespace trifold {

enum class Axis : uint8_t {
  Tp,   // tensor
  Cp,   // context: positions of a sequence
  Dp,   // data
  Etp,  // tensor, of experts
  Ep,   // expert
  Edp,  // data, of experts
  Pp    // pipeline
};
constexpr size_t kAxes = 7;

// A set of axes, as bits.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (Axis axis : axes) bits_ = static_cast<uint8_t>(bits_ | bit(axis));
  }
  constexpr bool has(Axis axis) const { return (bits_ & bit(axis)) != 0; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr AxisSet operator|(AxisSet other) const { return AxisSet(unsigned{bits_} | other.bits_); }
  constexpr AxisSet operator&(AxisSet other) const { return AxisSet(unsigned{bits_} & other.bits_); }
  constexpr AxisSet without(AxisSet other) const { return AxisSet(unsigned{bits_} & ~unsigned{other.bits_}); }
  constexpr bool operator==(const AxisSet&) const = default;
  constexpr bool operator<(const AxisSet& other) const { return bits_ < other.bits_; }  // an order for maps
  // Conversion to and from an integer: Work::group of collectives over these axes of a planned mesh.
  constexpr unsigned bits() const { return bits_; }
  static constexpr AxisSet of_bits(unsigned bits) { return AxisSet(bits); }

 private:
  constexpr explicit AxisSet(unsigned bits) : bits_(static_cast<uint8_t>(bits)) {}
  static constexpr uint8_t bit(Axis axis) { return static_cast<uint8_t>(1U << static_cast<uint8_t>(axis)); }
  uint8_t bits_ = 0;
};

// Along these axes each rank sees different tokens, so gradients are summed and ZeRO shards state over them:
// kDataAxes for parameters that every token uses, kExpertDataAxes for experts.
constexpr AxisSet kDataAxes{Axis::Cp, Axis::Dp};
constexpr AxisSet kExpertDataAxes{Axis::Edp};
// Ranks that differ only along these axes share the experts of a stage: ep shards the set of experts, etp each expert.
constexpr AxisSet kExpertShareAxes{Axis::Etp, Axis::Ep};
// The ranks of a pipeline stage differ only along these axes; each holds parts or copies of it.
constexpr AxisSet kStageAxes{Axis::Tp, Axis::Cp, Axis::Dp};

// The number of ranks along each axis.
class MeshSizes {
 public:
  // Axes that are not named have one rank; edp has the ranks of a stage divided by etp x ep.
  MeshSizes(std::initializer_list<std::pair<Axis, int>> sizes = {});
  int operator[](Axis axis) const { return sizes_[static_cast<size_t>(axis)]; }
  // The number of ranks of the whole mesh, and of a set of ranks that differ only along `axes`.
  int ranks() const { return ranks(kStageAxes | AxisSet{Axis::Pp}); }
  int ranks(AxisSet axes) const;
  bool operator==(const MeshSizes&) const = default;

 private:
  std::array<int, kAxes> sizes_;
};

// The coordinates of a rank.
class MeshCoords {
 public:
  // Axes that are not named have coordinate 0. Only coords_of fills in both grids.
  MeshCoords(std::initializer_list<std::pair<Axis, int>> coords = {});
  int operator[](Axis axis) const { return coords_[static_cast<size_t>(axis)]; }
  int& operator[](Axis axis) { return coords_[static_cast<size_t>(axis)]; }
  bool operator==(const MeshCoords&) const = default;

 private:
  std::array<int, kAxes> coords_;
};

// The coordinates of a rank, in both grids.
MeshCoords coords_of(int rank, const MeshSizes& sizes);
// The rank at coordinates of the dense grid.
int rank_of(const MeshCoords& coords, const MeshSizes& sizes);
// The index among the ranks that differ only along `axes`, ordered by their coordinates, fastest axis first.
// An Error if the axes belong to both grids.
int place_along(AxisSet axes, const MeshCoords& coords, const MeshSizes& sizes);
// ", experts of each layer on ep 4 x etp 2"; empty if experts are not sharded.
std::string experts_text(const MeshSizes& sizes);
// "tp", "ep.etp"
std::string axes_text(AxisSet axes);
// The positions of a sequence that a rank holds.
inline SequenceRows rows_here(RowCut cut, int64_t length, const MeshSizes& sizes, const MeshCoords& coords) {
  return SequenceRows::cut(cut, length, coords[Axis::Cp], sizes[Axis::Cp]);
}
// "dp1.pp0.tp3", for messages. ".cp1", ".ep1" and ".etp1" are appended for coordinates other than 0.
std::string label_of(const MeshCoords& coords);

class Mesh {
 public:
  // Collective over `world`, whose size must be sizes.ranks(); all of its ranks but this one may be absent
  // (comm/absent_comm.h). `world` must outlive the mesh. Makes the communicators
  // of the tensor, data and pipeline axes and of their pairs (kDataAxes count as one axis) and, if they have more than
  // one rank, of the context axis and of kExpertShareAxes. The first comm() for any other set of axes is collective:
  // every rank must call it, in the same order.
  Mesh(Communicator& world, const MeshSizes& sizes);

  // A planned mesh: the mesh from the point of view of the rank at `coords` of the dense grid, without ranks. Models
  // can be built for it and walked dry (comm/planned_comm.h); any real communication is an Error.
  Mesh(const MeshSizes& sizes, const MeshCoords& coords);

  const MeshSizes& sizes() const { return sizes_; }
  const MeshCoords& coords() const { return coords_; }
  int size(Axis axis) const { return sizes_[axis]; }
  int coord(Axis axis) const { return coords_[axis]; }
  Communicator& world() const { return *world_; }
  // The ranks that differ from this one only along `axes`, in the order of place_along.
  Communicator& comm(AxisSet axes) const;

 private:
  std::unique_ptr<Communicator> planned_;  // the world of a planned mesh
  Communicator* world_;
  MeshSizes sizes_;
  MeshCoords coords_;
  mutable std::map<AxisSet, std::unique_ptr<Communicator>> comms_;
};

}  // namespace trifold
