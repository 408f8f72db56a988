// `trifold plan --search` of a recommender: on how many ranks, with which placement of the tables, and with
// vectors in which numbers a step is forecast to be shortest (recommend_plan.h) within --memory-limit.
//
// Candidates: --ranks and the powers of two below, each kind of placement and the planner's choice, and where
// they travel between ranks, vectors in f32 and, unless the options say so already, in bf16. Of candidates
// that put every table in the same places, the first stays.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "recommend/forecast.h"

namespace trifold {

struct FoundRecommender {
  RecommendConfig run;             // with what was chosen
  std::vector<std::string> words;  // the options of that
  double step_seconds = 0;
  size_t bytes = 0;  // of the rank that needs most
  double imbalance = 1;
  std::string bound;  // what keeps it from being faster: "memory, gradients 41 %"
};

struct RecommenderSearch {
  int64_t layouts = 0;
  int64_t fitting = 0;
  std::vector<FoundRecommender> best;  // at most ten
};

// `config` is resolved. BadInput where nothing can run, or nothing fits: with what needs least.
RecommenderSearch search_recommender(const PlanRecommenderConfig& config);

}  // namespace trifold
