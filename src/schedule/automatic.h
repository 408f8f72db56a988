// --schedule auto: the order of F, I and W that the simulator finds fastest for given costs, within a limit
// on the activations that a rank keeps. Every named synchronous schedule that fits is a candidate, so none of
// them is faster; the other candidates are made by greedy.h under a grid of rules.
#pragma once

#include <optional>
#include <vector>

#include "config/fields/schedule.h"
#include "schedule/action.h"
#include "schedule/simulate.h"

namespace trifold {

struct AutomaticTask {
  int ranks = 1;
  int chunks = 1;
  int micros = 1;
  // The number of micro-batches for which a rank may keep the inputs of its stages, from F to W or B: the
  // limit on inputs is this times the stages of a rank.
  int max_in_flight = 1;
  bool looped = false;  // two stages per rank may not be placed in a V
  // Stages that share the token embedding: their ranks look up tokens, each in a stage of this cost before the others
  // (add_lookups), unless they have the first stage.
  std::vector<int> token_stages = {};
  StageCost lookup = {};
};

// The result of the search; seconds are simulated, with messages, without reductions and updates.
struct AutomaticChoice {
  std::optional<Schedule> named;  // the schedule whose plan was chosen; none: the search made the plan
  double seconds = 0;
  std::optional<Schedule> best_named;  // the fastest of those that fit the limit; none: none fits
  double best_named_seconds = 0;
};

struct AutomaticSchedule {
  Plan plan;  // computation only
  AutomaticChoice choice;
};

// The default for the most micro-batches in flight: about that of zb-h2.
int default_max_in_flight(int ranks);

// `cost` has the costs of the stages along the model and of messages; its bytes of memory are ignored. Equal
// arguments give equal plans, on every rank.
AutomaticSchedule make_automatic(const AutomaticTask& task, const CostModel& cost);

}  // namespace trifold
