// Mesh: named axes over ranks, a pure map rank <-> coordinates, and a communicator for any set of axes.
//
// "Axis" always means a direction of the mesh, "dim" a direction of a tensor. The order of ranks is
// Megatron-LM's default: tensor fastest, then data, pipeline slowest, rank = tp + TP * (dp + DP * pp).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "comm/communicator.h"

namespace trifold {

enum class Axis : uint8_t { Tp, Dp, Pp };  // fastest first

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

 private:
  constexpr explicit AxisSet(unsigned bits) : bits_(static_cast<uint8_t>(bits)) {}
  static constexpr uint8_t bit(Axis axis) { return static_cast<uint8_t>(1U << static_cast<uint8_t>(axis)); }
  uint8_t bits_ = 0;
};

// Along these ranks see other samples, so gradients are sums over them, and what all of them hold can be
// shared out among them (ZeRO).
constexpr AxisSet kDataAxes{Axis::Dp};
// Over these a pipeline stage is spread: the ranks that differ only along them hold parts or copies of it.
constexpr AxisSet kStageAxes{Axis::Tp, Axis::Dp};

struct MeshSizes {
  int tp = 1;
  int dp = 1;
  int pp = 1;
  int ranks() const { return tp * dp * pp; }
  bool operator==(const MeshSizes&) const = default;
};

struct MeshCoords {
  int tp = 0;
  int dp = 0;
  int pp = 0;
  bool operator==(const MeshCoords&) const = default;
};

MeshCoords coords_of(int rank, const MeshSizes& sizes);
int rank_of(const MeshCoords& coords, const MeshSizes& sizes);
// "dp1.pp0.tp3": for messages.
std::string label_of(const MeshCoords& coords);

class Mesh {
 public:
  // Collective over `world`, whose size must be sizes.ranks(). `world` must outlive the mesh. Splits the
  // communicators of the single axes and of their pairs at once; any other set has to be asked for by every
  // rank in the same order.
  Mesh(Communicator& world, const MeshSizes& sizes);

  // The place `coords` of a mesh that is only planned: no rank exists, and nothing is allocated. Models can
  // be built for it and walked dry (comm/planned_comm.h); any real communication is an Error.
  Mesh(const MeshSizes& sizes, const MeshCoords& coords);

  const MeshSizes& sizes() const { return sizes_; }
  const MeshCoords& coords() const { return coords_; }
  int size(Axis axis) const;
  int coord(Axis axis) const;
  Communicator& world() const { return *world_; }
  // The ranks that differ from this one only along `axes`, ordered by their coordinates, fastest axis first.
  Communicator& comm(AxisSet axes) const;

 private:
  std::unique_ptr<Communicator> planned_;  // the world of a planned mesh
  Communicator* world_;
  MeshSizes sizes_;
  MeshCoords coords_;
  mutable std::map<AxisSet, std::unique_ptr<Communicator>> comms_;
};

}  // namespace trifold
