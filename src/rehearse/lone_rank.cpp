#include "rehearse/lone_rank.h"

#include <algorithm>

#include "core/clock.h"
#include "core/host_memory.h"
#include "core/median.h"
#include "mesh/mesh.h"
#include "pipeline/action_times.h"

namespace trifold {

namespace {

// The actions of a row by kind and stage, in the order in which they first occur, with their median times. `rest`: the
// seconds after the last action, in which a synchronous step ends with its update.
std::vector<MeasuredAction> measured_actions(const RankPlan& row, int64_t steps, const ActionTimes& times,
                                             double rest) {
  std::vector<MeasuredAction> all;
  for (const Action& action : row) {
    const auto known = std::find_if(all.begin(), all.end(), [&](const MeasuredAction& each) {
      return each.kind == action.kind && each.stage == action.stage;
    });
    const bool of_block = action.block != Action::kAll;
    if (known != all.end()) {
      ++known->count;
      known->of_block = known->of_block && of_block;
    } else {
      all.push_back({action.kind, action.stage, 1, times.median(action.kind, action.stage), of_block});
    }
  }
  for (MeasuredAction& each : all) each.count /= static_cast<int>(steps);
  const auto update = std::find_if(all.rbegin(), all.rend(),
                                   [](const MeasuredAction& each) { return each.kind == ActionKind::Step; });
  if (update != all.rend())
    update->median_seconds += rest;
  else if (!row.empty())
    all.push_back({ActionKind::Step, row.back().stage, 1, rest});
  return all;
}

}  // namespace

std::vector<MeasuredCall> measured_calls(const AbsentCallCounts& calls, int64_t steps) {
  std::vector<MeasuredCall> all;
  for (const AbsentCalls& each : calls.list()) {
    const std::string axes = axes_text(AxisSet::of_bits(each.group));
    all.push_back({axes.empty() ? "world" : axes, each.name, each.ranks, each.bytes, each.all_bytes / steps,
                   (each.count + steps - 1) / steps, each.seconds / static_cast<double>(steps)});
  }
  return all;
}

namespace {

// What is measured of a rank, step by step.
class Measuring {
 public:
  Measuring(LoneRank& rank, AbsentCallCounts& calls, RehearsedRank& result)
      : rank_(rank), calls_(calls), result_(result), before_(result.resident_bytes), times_([&rank] {
          rank.settle();
        }) {
    result.resident_bytes = 0;
    look_at_memory();
  }
  ~Measuring() { rank_.watch(nullptr); }
  Measuring(const Measuring&) = delete;
  Measuring& operator=(const Measuring&) = delete;

  void look_at_memory() {
    rank_.note_held(result_);
    const size_t now = resident_memory();
    result_.resident_bytes = std::max(result_.resident_bytes, now - std::min(before_, now));
  }

  enum class Timed { Nothing, Actions, Whole };
  void step(Timed timed) {
    rank_.watch(timed == Timed::Actions ? &times_ : nullptr);
    calls_.restart();
    rank_.settle();
    const auto start = Clock::now();
    rank_.advance();
    rank_.settle();
    const auto steps = static_cast<double>(rank_.steps_at_once());
    const double seconds = seconds_since(start) / steps;
    look_at_memory();
    if (timed == Timed::Nothing) return;
    result_.steps += rank_.steps_at_once();
    if (timed == Timed::Actions) rests_.push_back(seconds_since(times_.last_end()));
    (timed == Timed::Actions ? alone_ : overlapped_).push_back(seconds);
    result_.actions = measured_actions(rank_.actions(), rank_.steps_at_once(), times_, median(rests_));
    result_.calls = measured_calls(calls_, rank_.steps_at_once());
    result_.step_seconds = median(overlapped_.empty() ? alone_ : overlapped_);
  }

 private:
  LoneRank& rank_;
  AbsentCallCounts& calls_;
  RehearsedRank& result_;
  size_t before_;
  ActionTimes times_;
  std::vector<double> rests_, alone_, overlapped_;
};

}  // namespace

void measure(LoneRank& rank, AbsentCallCounts& calls, int64_t steps, RehearsedRank& result) {
  Measuring measuring(rank, calls, result);
  result.loaded = rank.load();
  // A plan of more steps than are asked for is long enough for the costs of a beginning not to matter.
  if (rank.steps_at_once() <= steps && rank.steps_left() > rank.steps_at_once())
    measuring.step(Measuring::Timed::Nothing);
  auto timed = Measuring::Timed::Actions;
  while (result.steps < steps && rank.steps_left() > 0) {
    measuring.step(timed);
    timed = timed == Measuring::Timed::Actions ? Measuring::Timed::Whole : Measuring::Timed::Actions;
  }
  if (result.steps == 0)
    result.notes.emplace_back("nothing was measured: no step of the run was left to measure");
}

}  // namespace trifold
