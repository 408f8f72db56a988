// `trifold plan --search` for a recommender: finds the number of ranks, the placement of tables and the type of vectors
// with the shortest forecast step (recommend/planning/forecast.h) within --memory-limit.
//
// Candidates: --ranks and smaller powers of two; each kind of placement and the planner's choice; and, if vectors are
// sent between ranks, f32 and bf16 vectors (only bf16 if the options ask for it). Of candidates with the same placement
// of every table only the first is kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recommend/planning/forecast.h"

namespace trifold {

struct FoundRecommender {
  RecommendConfig run;             // with the chosen values
  std::vector<std::string> words;  // the same values as options
  double step_seconds = 0;
  size_t bytes = 0;  // memory of the rank that needs most
  double imbalance = 1;
  std::string bound;  // the limits of its speed: "memory, gradients 41 %"
};

struct RecommenderSearch {
  int64_t layouts = 0;
  int64_t fitting = 0;
  std::vector<FoundRecommender> best;  // at most ten
};

// `config` must be resolved. BadInput if no candidate can run or fits; the message then names the candidate that needs
// least memory.
RecommenderSearch search_recommender(const PlanRecommenderConfig& config);

}  // namespace trifold
