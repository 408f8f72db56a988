#include "plan/schedule_flight.h"

#include <algorithm>
#include <map>
#include <utility>

#include "schedule/schedules.h"

namespace trifold {

ScheduleFlight flight_of(const Plan& plan) {
  ScheduleFlight flight;
  for (const RankPlan& row : plan) {
    struct Count {
      int slots = 0, pending = 0;
    };
    std::map<int, std::pair<Count, Count>> stages;  // current and highest count
    for (const Action& action : row) {
      if (!is_compute(action.kind)) continue;
      auto& [now, most] = stages[action.stage];
      if (action.kind == ActionKind::F) ++now.slots;
      if (action.kind == ActionKind::I) ++now.pending;
      most = {std::max(most.slots, now.slots), std::max(most.pending, now.pending)};
      if (action.kind == ActionKind::W) --now.pending;
      if (action.kind == ActionKind::W || action.kind == ActionKind::B) --now.slots;
      flight.splits = flight.splits || action.kind == ActionKind::I;
      flight.whole = flight.whole || action.kind == ActionKind::B;
    }
    std::vector<StageFlight>& rank = flight.ranks.emplace_back();
    std::map<int, int> chunks;
    for (const auto& [stage, counts] : stages) {
      chunks[stage] = static_cast<int>(rank.size());
      rank.push_back({stage, counts.second.slots, counts.second.pending});
    }
    std::vector<InFlightEvent>& events = flight.events.emplace_back();
    for (const Action& action : row)
      if (is_compute(action.kind)) events.push_back({chunks[action.stage], action.kind});
  }
  return flight;
}

ScheduleFlight schedule_flight(Schedule schedule, int ranks, int chunks, int micros) {
  const bool one = ranks == 1 && chunks == 1;
  // gpipe keeps all micro-batches; other schedules reach their steady state after a few.
  const int enough = 3 * ranks + micros % ranks;
  const int walked = schedule == Schedule::Gpipe ? micros : std::min(micros, enough);
  return flight_of(one ? one_stage(std::min(micros, 2)) : make_schedule(schedule, ranks, chunks, walked));
}

}  // namespace trifold
