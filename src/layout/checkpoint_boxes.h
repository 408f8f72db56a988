// What a run stores of its flat buffers: the boxes, in global coordinates, that pieces of parameters are. One
// rule for runs, which have their numbers, and for resharding, which has none.
#pragma once

#include <string_view>
#include <vector>

#include "checkpoint/writer.h"
#include "core/function_ref.h"
#include "mesh/shard_spec.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

// A box of a segment of a parameter; its elements follow each other in the segment's memory from `first` on.
struct StoredBox {
  ShardSpec spec;     // its name is "<kind>/<parameter>"
  int64_t first = 0;  // element of the segment
};

// The boxes of a segment, under the names a checkpoint knows. Rows of padding (ParamSpec::rows) are not
// stored, so that the tensor is the same on every mesh; a copy of a tied weight goes by the name of its
// original. Whoever saves has chosen, by counts_here of the parameter, among the ranks that hold the same
// segment: no axis is among the replicated ones.
std::vector<StoredBox> stored_boxes(const ParamList& params, std::string_view kind,
                                    const FlatLayout::Segment& segment);

// What a rank owns of weights and optimizer state, where it lives, under these names: of the parameters that
// are `wanted`. To load, a run wants all of them; to save, those that this rank counts.
std::vector<NamedTensor> stored_tensors(const ParamList& params, const ShardedOptimizer& optimizer,
                                        FunctionRef<bool(ParamId)> wanted);

}  // namespace trifold
