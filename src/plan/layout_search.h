// The fastest layouts of a run on a device, found without running any: `trifold plan --search` and `pretrain
// --auto-layout`.
//
// Every point of the space (config/command_line/search_axes.h) is estimated: memory by LayoutMemory, what does not fit is
// left out; the time of a step in closed form (plan/step_time.h). The twenty fastest that differ in more than
// ZeRO stage, recomputation and sequence parallelism are planned exactly and simulated. Forecasts that are
// closer than 2 % are taken for equal: less memory comes first then, fewer tensor ranks next.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "config/command_line/search_axes.h"
#include "config/fields/config.h"
#include "plan/step_time.h"

namespace trifold {

// Forecasts that differ by less are one.
inline constexpr double kSearchTie = 0.02;

// What a layout is compared by.
struct LayoutRank {
  double seconds = 0;  // of a step
  double bytes = 0;    // of the rank that needs most
  int64_t tensor = 1;
};
// The order of `ranks`, best first, as indices. The fastest and all that tie with it come first, ordered by
// memory in steps of 2 % of `limit` bytes, then tensor ranks, then time; then the fastest of the rest and its
// ties, and so on.
std::vector<size_t> order_of_layouts(const std::vector<LayoutRank>& ranks, double limit);

struct EstimatedLayout {
  Layout layout;
  int64_t data = 1;  // data-parallel ranks
  StepTime time;     // in closed form
  size_t bytes = 0;  // estimated, of the rank that needs most
};

struct FoundLayout {
  EstimatedLayout estimate;
  PretrainConfig run;  // resolved
  std::vector<std::string> words;
  double step_seconds = 0;  // simulated
  double bubble = 0;
  size_t bytes = 0;  // exact
  double mfu = 0;
  std::string bound;  // what keeps it from being faster: "memory, bubble 12 %"
};

struct LayoutSearch {
  Hardware hardware;
  double limit = 0;     // bytes of a rank
  int64_t layouts = 0;  // in the space
  int64_t fitting = 0;
  int64_t simulated = 0;
  int64_t tokens = 0;                   // of a step
  std::vector<FoundLayout> best;        // at most ten
  std::vector<EstimatedLayout> meshes;  // the best estimate of each mesh that fits, best first
};

// `config` is resolved with its `search` set, and has a vocabulary. BadInput where nothing can run, or
// nothing fits: with what needs least.
LayoutSearch search_layouts(const PlanConfig& config);

// The best of it for a run that asks for --auto-layout; resolved, and without that option.
struct ChosenLayout {
  PretrainConfig run;
  FoundLayout found;
};
ChosenLayout choose_layout(const PretrainConfig& config);

}  // namespace trifold
