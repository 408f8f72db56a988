// Comparison of what several ranks hold alike: weights and optimizer state that the mesh replicates. Copies
// have the same bits by construction, because every rank of a group applies the same sums to the same
// numbers; copies that differ mean that a rank's memory or arithmetic has failed, and which of them is saved
// is undefined.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

// One rank's copy of a piece of a tensor.
struct HeldCopy {
  std::string name;      // "adam_m/block.3.norm.gain"
  uint64_t place = 0;    // key of the piece in its tensor: the same on all ranks that hold it
  int64_t first = 0;     // where the piece begins in the rank's box: a multiple of kGrain elements
  int copies = 1;        // of the piece, over all ranks
  bool is_first = true;  // exactly one of the copies is the first
  Tensor values;         // where the operations read them
  // A second use of a tensor on another rank: the pieces of both uses have the same values, though they may
  // be cut differently. `tied` is the name that both go by, empty for none; `is_use` says which this is.
  std::string tied = {};
  bool is_use = false;
};

// The part of a tensor that `rect` is, and of that the elements from `first` on, as a key.
uint64_t place_of(const Rect& rect, int64_t first, int64_t count);

// Collective over `world`. Throws an Error of kind Agreed on all ranks when copies differ; it names the
// tensors and the ranks: those in the minority where there is a majority, else all that hold a copy. `when`
// begins its text ("step 40"). Each rank reads its copies once; one small sum over the ranks decides, and
// only where that finds a difference do names travel. `stream` is that of `ops`, past what wrote the copies.
void compare_copies(Communicator& world, const OpTable& ops, Stream& stream,
                    const std::vector<HeldCopy>& held, const std::string& when);

// The copies that a rank holds of a model's parameters: weights, masters and optimizer state, where the
// specification of a parameter (mesh/shard_spec.h), the data-parallel groups or a tie between stages
// replicate them. Waits on `stream` for weights that are on their way.
std::vector<HeldCopy> held_copies(const Mesh& mesh, const FlatLayout& layout, ParamStore& weights,
                                  const ShardedOptimizer& optimizer, const GradientBuffer& grads,
                                  Stream& stream);

}  // namespace trifold
