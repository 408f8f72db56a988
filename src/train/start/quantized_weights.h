// Reads quantized weights of a run from a checkpoint, which has them unquantized.
#pragma once

#include <span>

#include "checkpoint/reader.h"
#include "train/replica.h"

namespace trifold {

// Fills segments of quantized parameters of the replica's store: reads some rows at a time, quantizes them and writes
// them to their place. Not collective; the bits do not depend on the mesh.
void load_quantized(Replica& replica, std::span<const FlatLayout::Segment> segments, CheckpointReader& from);

// All that this rank holds: its slices, if weights are sharded.
void load_quantized(Replica& replica, CheckpointReader& from);

}  // namespace trifold
