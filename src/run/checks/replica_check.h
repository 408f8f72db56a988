// Compares replicas of weights and optimizer state between ranks. They have the same bits by construction, because
// every rank of a group applies the same sums to the same values; a difference means that a rank's memory or arithmetic
// has failed, and it would be undefined which copy is saved.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/stored_rows.h"
#include "comm/communicator.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

// One rank's copy of a piece of a tensor.
struct HeldCopy {
  std::string name;      // "adam_m/block.3.norm.gain"
  uint64_t piece = 0;    // key of the piece within its tensor, the same on all ranks that hold it
  int64_t first = 0;     // start of the piece in the rank's box, a multiple of kGrain elements
  int copies = 1;        // copies of the piece on all ranks
  bool is_first = true;  // true for exactly one of the copies
  Tensor values;         // in the memory of the operation table
  // For a tensor that is used a second time on another rank: the pieces of both uses have the same values, though they
  // may be cut differently. `tied` is the common name of both, empty for none; `is_use` marks which use this is.
  std::string tied = {};
  bool is_use = false;
  StoredRows* stored = nullptr;  // if set, has the values instead of `values`, one in each row
};

// HeldCopy::piece for elements [first, first + count) of box `rect`.
uint64_t piece_key(const Rect& rect, int64_t first, int64_t count);

// Collective over `world`. Throws an Error of kind Agreed on all ranks if copies differ; it names the tensors and the
// ranks in the minority, or all ranks with a copy if there is no majority. `when` begins its text ("step 40"). Each
// rank reads its copies once; one small sum over the ranks decides, and names are exchanged only if it finds a
// difference. `stream` is the stream of `ops` on which the copies were written.
void compare_copies(Communicator& world, const OpTable& ops, Stream& stream,
                    const std::vector<HeldCopy>& held, const std::string& when);

// The copies that a rank holds of a model's parameters (weights, masters and optimizer state) if a parameter's
// specification (mesh/shard_spec.h), the data-parallel groups or a tie between stages replicate them. Waits on `stream`
// for weights in flight.
std::vector<HeldCopy> held_copies(const Mesh& mesh, const FlatLayout& layout, ParamStore& weights,
                                  const ShardedOptimizer& optimizer, const GradientBuffer& grads,
                                  Stream& stream);

}  // namespace trifold
