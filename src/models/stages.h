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

// Cuts the blocks into `stages` runs of at least one block such that the most expensive stage is as cheap as possible;
// ties go to the most even cut. BadInput when there are fewer blocks than stages. Costs may be in any unit and must not
// be negative.
std::vector<StageRange> cut_stages(std::span<const double> block_costs, int stages);

}  // namespace trifold
