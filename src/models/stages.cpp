#include "models/stages.h"

#include <algorithm>
#include <limits>

#include "core/error.h"

namespace trifold {

namespace {

// The quality of a cut of the first blocks into some stages; smaller is better, and the worst stage is compared first.
struct Score {
  double worst = std::numeric_limits<double>::infinity();
  double squares = std::numeric_limits<double>::infinity();
  bool operator<(const Score& other) const {
    return worst != other.worst ? worst < other.worst : squares < other.squares;
  }
};

Score with_stage(const Score& before, double cost) {
  return {std::max(before.worst, cost), before.squares + cost * cost};
}

}  // namespace

// best[s][n] is the best score of the first n blocks in s stages, from[s][n] where its last stage begins.
// Minimising the worst stage first keeps the optimal substructure: a better head never makes a cut worse.
std::vector<StageRange> cut_stages(std::span<const double> block_costs, int stages) {
  const int blocks = static_cast<int>(block_costs.size());
  if (stages < 1 || stages > blocks)
    bad_input("{} blocks cannot be cut into {} stages: every stage needs at least one", blocks, stages);
  const auto width = static_cast<size_t>(blocks) + 1;
  std::vector<double> sums(width, 0.0);
  for (size_t i = 0; i < block_costs.size(); ++i) sums[i + 1] = sums[i] + block_costs[i];

  std::vector<Score> best(width);
  best[0] = {0, 0};
  std::vector<std::vector<int>> from(static_cast<size_t>(stages), std::vector<int>(width, 0));
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<Score> next(width);
    for (int end = stage + 1; end <= blocks - (stages - 1 - stage); ++end) {
      for (int begin = end - 1; begin >= stage; --begin) {
        const double cost = sums[static_cast<size_t>(end)] - sums[static_cast<size_t>(begin)];
        if (cost > next[static_cast<size_t>(end)].worst) break;  // longer last stages only cost more
        const Score score = with_stage(best[static_cast<size_t>(begin)], cost);
        if (!(score < next[static_cast<size_t>(end)])) continue;
        next[static_cast<size_t>(end)] = score;
        from[static_cast<size_t>(stage)][static_cast<size_t>(end)] = begin;
      }
    }
    best = std::move(next);
  }

  std::vector<StageRange> cut(static_cast<size_t>(stages));
  int end = blocks;
  for (int stage = stages - 1; stage >= 0; --stage) {
    const int begin = from[static_cast<size_t>(stage)][static_cast<size_t>(end)];
    cut[static_cast<size_t>(stage)] = {begin, end};
    end = begin;
  }
  return cut;
}

}  // namespace trifold
