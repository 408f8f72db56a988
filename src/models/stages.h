// Cuts a list of blocks into pipeline stages by cost.
#pragma once

#include <span>
#include <vector>

namespace trifold {

// Blocks [begin, end) of the model.
struct StageRange {
  int begin = 0;
  int end = 0;
  int size() const { return end - begin; }
  bool operator==(const StageRange&) const = default;
};

// Cuts the blocks into `stages` stages of at least one block so that the most expensive stage is as cheap as possible;
// ties go to the most even cut. Costs may be in any unit and must not be negative. BadInput if there are fewer blocks
// than stages.
std::vector<StageRange> cut_stages(std::span<const double> block_costs, int stages);

}  // namespace trifold
