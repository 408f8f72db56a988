// The parts of a run's flat buffers that checkpoints store, as boxes in global coordinates. Used by runs, which have
// the values, and by resharding, which does not.
#pragma once

#include <string_view>
#include <vector>

#include "checkpoint/writer.h"
#include "core/function_ref.h"
#include "mesh/shard_spec.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

// A box of a segment of a parameter; its elements are contiguous in the segment's memory, from element `first` on.
struct StoredBox {
  ShardSpec spec;     // its name is "<kind>/<parameter>"
  int64_t first = 0;  // index in the segment
};

// The boxes of a segment, with the names that checkpoints use. Rows of padding (ParamSpec::rows) are not stored, so the
// tensor is the same on every mesh; a copy of a tied weight has the name of its original. The boxes have no replicated
// axes, because the caller has already selected one of the ranks that hold the same segment (counts_here).
std::vector<StoredBox> stored_boxes(const ParamList& params, std::string_view kind,
                                    const FlatLayout::Segment& segment);

// Views of the weights and optimizer state that this rank owns, with these names, for parameters that are `wanted`: all
// parameters when a run loads, or the parameters that this rank counts when it saves.
std::vector<NamedTensor> stored_tensors(const ParamList& params, const ShardedOptimizer& optimizer,
                                        FunctionRef<bool(ParamId)> wanted);

}  // namespace trifold
