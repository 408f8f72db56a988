// What it costs to train a model, block by block and for one sample: counted as plans count it, by walking its layers
// (models/model_walk.h) and by the dry run of a plan, so nothing of the model is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "layout/memory_report.h"
#include "layout/run_spec.h"

namespace trifold {

struct BlockSample {
  int64_t parameters = 0;  // that no earlier block has
  double forward = 0;      // flops of a forward without backward
  double step = 0;         // flops of forward and backward
  size_t kept = 0;         // bytes that forward keeps for backward, the block's output included
  int64_t passed_on = 0;   // elements of the output; 0 for the last block
};

struct ModelCosts {
  std::vector<BlockSample> blocks;
  MemoryReport memory;  // the bytes of a rank that holds the whole model, for a micro-batch of one sample
  size_t further_sample = 0;  // bytes of activations that each further sample adds
  double step = 0;            // flops of forward and backward, as plans count them
};

// `run` must be resolved; its mesh has one rank. Its numbers of samples are ignored.
ModelCosts model_costs(const RunSpec& run);

}  // namespace trifold
