// --schedule auto: finds the order of F, I and W that the simulator finds fastest for given costs, within a limit on
// the activations that a rank keeps. Every named synchronous schedule that fits the limit is a candidate, so the result
// is at least as fast as each of them; greedy.h makes the other candidates under a grid of rules.
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
  // Micro-batches for which a rank may keep the inputs of its stages, from F to W or B: it may keep this number times
  // its stages of inputs.
  int max_in_flight = 1;
  bool looped = false;  // two stages per rank may not be placed in a V
  // Stages that share the token embedding. Their ranks look up tokens in additional stages of this cost in front of the
  // others (add_lookups), unless they have the first stage.
  std::vector<int> token_stages = {};
  StageCost lookup = {};
};

// The result of the search; seconds are simulated, with messages, without reductions and updates.
struct AutomaticChoice {
  std::optional<Schedule> named;  // the named schedule that was chosen; none: a plan of the search
  double seconds = 0;
  std::optional<Schedule> best_named;  // the fastest named schedule within the limit; none: none fits
  double best_named_seconds = 0;
};

struct AutomaticSchedule {
  Plan plan;  // computation only
  AutomaticChoice choice;
};

// The default of max_in_flight: about as many as zb-h2 has.
int default_max_in_flight(int ranks);

// `cost` has the costs of the stages along the model and of messages; its bytes of memory are ignored. Equal arguments
// give equal plans, so that all ranks get the same one.
AutomaticSchedule make_automatic(const AutomaticTask& task, const CostModel& cost);

}  // namespace trifold
