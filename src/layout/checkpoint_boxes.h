// The parts of a run's flat buffers that checkpoints store: the boxes, in global coordinates, of pieces of
// parameters. Runs, which have the values, and resharding, which does not, share this code.
#pragma once

#include <string_view>
#include <vector>

#include "checkpoint/writer.h"
#include "core/function_ref.h"
#include "mesh/shard_spec.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

// A box of a segment of a parameter; its elements are contiguous in the segment's memory from `first` on.
struct StoredBox {
  ShardSpec spec;     // its name is "<kind>/<parameter>"
  int64_t first = 0;  // element within the segment
};

// The boxes of a segment, under the names that checkpoints use. Rows of padding (ParamSpec::rows) are not
// stored, so the tensor is the same on every mesh; a copy of a tied weight has the name of its original. The
// boxes have no replicated axes: the caller has already chosen, with counts_here of the parameter, one of the
// ranks that hold the same segment.
std::vector<StoredBox> stored_boxes(const ParamList& params, std::string_view kind,
                                    const FlatLayout::Segment& segment);

// The weights and optimizer state that this rank owns, in place, under these names, for the parameters that
// are `wanted`: all of them when a run loads, those that this rank counts when it saves.
std::vector<NamedTensor> stored_tensors(const ParamList& params, const ShardedOptimizer& optimizer,
                                        FunctionRef<bool(ParamId)> wanted);

}  // namespace trifold
