#include "schedule/placement.h"

#include <algorithm>

#include "core/error.h"

namespace trifold {

std::string where(const Plan& plan, size_t rank, size_t index) {
  return fmt::format("{} (rank {}, action {})", to_string(plan[rank][index]), rank, index + 1);
}

std::vector<int> stage_ranks(const Plan& plan) {
  constexpr int kMostStages = 1 << 20;  // an absurd number in a file must not become the size of a table
  std::vector<int> ranks;
  for (size_t rank = 0; rank < plan.size(); ++rank)
    for (size_t i = 0; i < plan[rank].size(); ++i) {
      const int stage = plan[rank][i].stage;
      if (stage < 0 || stage >= kMostStages)
        bad_input("the plan is wrong at {}: no pipeline has that many stages", where(plan, rank, i));
      const auto place = static_cast<size_t>(stage);
      if (ranks.size() <= place) ranks.resize(place + 1, -1);
      if (ranks[place] < 0) ranks[place] = static_cast<int>(rank);
      if (ranks[place] != static_cast<int>(rank))
        bad_input("the plan is wrong at {}: stage {} is on rank {} too", where(plan, rank, i), stage,
                  ranks[place]);
    }
  for (size_t stage = 0; stage < ranks.size(); ++stage)
    if (ranks[stage] < 0)
      bad_input("the plan is wrong: it has a stage {} but no rank runs stage {}", ranks.size() - 1, stage);
  return ranks;
}

std::vector<size_t> tied_ranks(const Plan& plan) {
  std::vector<size_t> ranks;
  for (size_t rank = 0; rank < plan.size(); ++rank)
    if (std::any_of(plan[rank].begin(), plan[rank].end(),
                    [](const Action& action) { return action.kind == ActionKind::ReduceTied; }))
      ranks.push_back(rank);
  return ranks;
}

}  // namespace trifold
