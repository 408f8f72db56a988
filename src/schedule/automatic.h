// --schedule auto: the order of F, I and W that the simulator finds fastest for given costs, within a limit on
// the activations that a rank keeps. Every named synchronous schedule that fits is a candidate, so none of
// them is faster; the others are made by greedy_schedule.h under a grid of rules.
#pragma once

#include <optional>

#include "config/fields/schedule.h"
#include "schedule/action.h"
#include "schedule/simulate.h"

namespace trifold {

struct AutomaticTask {
  int ranks = 1;
  int chunks = 1;
  int micros = 1;
  // Micro-batches of which a rank may keep the inputs of its stages, from F to W or B: at most as many inputs
  // as this times the stages of a rank.
  int max_in_flight = 1;
  bool looped = false;  // two stages a rank may not lie in a V
};

// What was found; seconds are simulated, messages included, without reductions and updates.
struct AutomaticChoice {
  std::optional<Schedule> named;  // the plan is that of this schedule; none: made here
  double seconds = 0;
  std::optional<Schedule> best_named;  // the fastest of those that fit the limit; none: none fits
  double best_named_seconds = 0;
};

struct AutomaticSchedule {
  Plan plan;  // computation only
  AutomaticChoice choice;
};

// Most micro-batches in flight where nobody says: about those of zb-h2.
int default_max_in_flight(int ranks);

// `cost` has the stages along the model and what messages take; their bytes of memory do not count. Equal
// arguments give equal plans, whichever rank makes them.
AutomaticSchedule make_automatic(const AutomaticTask& task, const CostModel& cost);

}  // namespace trifold
