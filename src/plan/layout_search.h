// Finds the fastest layouts of a run on a device without running any: `trifold plan --search` and `pretrain
// --auto-layout`.
//
// Every point of the space (config/commands/search_axes.h) is estimated: memory by LayoutMemory or, for a model from a
// file, by a whole plan, which excludes layouts that do not fit, and the time of a step in closed form (plan/forecast/step_time.h). The twenty fastest that
// differ in more than ZeRO stage, recomputation and sequence parallelism are planned exactly and simulated. Forecasts
// within 2 % count as equal; ties go to less memory, then to fewer tensor ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "config/commands/search_axes.h"
#include "config/fields/config.h"
#include "plan/forecast/step_time.h"

namespace trifold {

// Forecasts that differ by less are equal.
inline constexpr double kSearchTie = 0.02;

// The values by which layouts are compared.
struct LayoutRank {
  double seconds = 0;  // per step
  double bytes = 0;    // on the rank that needs most
  int64_t tensor = 1;
};
// The order of `ranks`, best first, as indices. The fastest and its ties come first, ordered by memory in steps of 2 %
// of `limit` bytes, then tensor ranks, then time; then the fastest of the rest and its ties, and so on.
std::vector<size_t> order_of_layouts(const std::vector<LayoutRank>& ranks, double limit);

struct EstimatedLayout {
  Layout layout;
  int64_t data = 1;  // data-parallel ranks
  StepTime time;     // in closed form
  size_t bytes = 0;  // estimate for the rank that needs most
};

struct FoundLayout {
  EstimatedLayout estimate;
  PretrainConfig run;  // resolved
  std::vector<std::string> words;
  double step_seconds = 0;  // simulated
  double bubble = 0;
  size_t bytes = 0;  // exact count
  double mfu = 0;
  std::string bound;  // what limits its speed: "memory, bubble 12 %"
};

struct LayoutSearch {
  Hardware hardware;
  double limit = 0;     // bytes that a rank may use
  int64_t layouts = 0;  // layouts in the space
  int64_t fitting = 0;
  int64_t simulated = 0;
  int64_t tokens = 0;                   // tokens per step
  std::vector<FoundLayout> best;        // at most ten
  std::vector<EstimatedLayout> meshes;  // the best estimate for each mesh that fits, best first
  bool activations_described = false;   // activations are another program's (Software::activations)
};

// `config` is resolved, has `search` set and has a vocabulary. BadInput if no layout can run, or none fits; the message
// then names the layout that needs least.
LayoutSearch search_layouts(const PlanConfig& config);

// The best layout for a run with --auto-layout; `run` is resolved and lacks that option.
struct ChosenLayout {
  PretrainConfig run;
  FoundLayout found;
};
ChosenLayout choose_layout(const PretrainConfig& config);

}  // namespace trifold
