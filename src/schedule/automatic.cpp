#include "schedule/automatic.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "core/error.h"
#include "schedule/greedy.h"
#include "schedule/passes.h"
#include "schedule/placement.h"
#include "schedule/schedules.h"

namespace trifold {

namespace {

// Schedules whose times differ by less than this fraction are equally fast: sums of times are rounded.
constexpr double kEqualTimes = 1e-9;

// The number of greedy plans, for one placement of stages, that are simulated with their messages.
constexpr size_t kSimulated = 8;

// Bounds of the search, as numbers of actions rather than times, so that all ranks and runs find the same plan. Rules
// are compared by plans of at most kComparedActions actions, but at least kComparedPerRank micro-batches for each
// rank, in which a pipeline fills, runs full, and drains; and only some of them if all such plans had more than
// kTriedActions.
constexpr int64_t kComparedActions = 20000;
constexpr int64_t kComparedPerRank = 2;
constexpr int64_t kTriedActions = 3'000'000;
constexpr int64_t kFewestRules = 12;
// The number of shortened plans, best first, that are then made for the whole step.
constexpr size_t kWhole = 2;

std::vector<GreedyRules> all_rules() {
  constexpr double kAny = 1e9;
  constexpr std::array kLeads{1.0, 1.5, 2.0, 3.0, kAny};
  constexpr std::array kLags{0.0, 1.0, 2.0, kAny};
  constexpr std::array kGaps{0.0, 0.5, 1.0};
  std::vector<GreedyRules> rules;
  for (const double lead : kLeads)
    for (const double lag : kLags)
      for (const double gap : kGaps)
        for (const bool inputs_first : {false, true}) rules.push_back({lead, lag, gap, inputs_first});
  return rules;
}

// Merges adjacent I and W of one micro-batch into one B, on `stage` or on all stages.
Plan merge_backwards(const Plan& plan, std::optional<int> stage) {
  Plan merged(plan.size());
  for (size_t rank = 0; rank < plan.size(); ++rank)
    for (const Action& action : plan[rank]) {
      RankPlan& row = merged[rank];
      const bool joins = action.kind == ActionKind::W && !row.empty() && row.back().kind == ActionKind::I &&
                         row.back().stage == action.stage && row.back().micro == action.micro &&
                         action.stage == stage.value_or(action.stage);
      if (joins)
        row.back().kind = ActionKind::B;
      else
        row.push_back(action);
    }
  return merged;
}

class AutomaticSearch {
 public:
  AutomaticSearch(const AutomaticTask& task, const CostModel& cost) : task_(task), cost_(cost) {
    cost_.memory_limit.reset();
    cost_.timeline = false;
    for (StageCost& stage : cost_.stages) {
      stage.reduce = stage.step = 0;
      cheaper_whole_ = cheaper_whole_ || stage.whole_backward() < stage.i + stage.w;
    }
  }

  AutomaticSchedule find() {
    for (const std::string_view name : schedule_names()) try_named(*find_schedule(name));
    best_.choice.best_named = best_.choice.named;
    best_.choice.best_named_seconds = best_.choice.seconds;
    try_greedy(Schedule::Interleaved, false);
    if (task_.chunks == 2 && !task_.looped) try_greedy(Schedule::ZbV, false);
    if (best_.plan.empty()) try_greedy(Schedule::Interleaved, true);
    check(!best_.plan.empty(), "no order of {} ranks with {} stages each keeps at most {} inputs",
          task_.ranks, task_.chunks, max_kept());
    return std::move(best_);
  }

 private:
  int stages() const { return task_.ranks * task_.chunks; }
  int max_kept() const { return task_.max_in_flight * task_.chunks; }

  void try_named(Schedule schedule) {
    if (is_async(schedule) || schedule == Schedule::Auto) return;
    if (task_.looped && needs_two_chunks(schedule)) return;
    if (!schedule_problem(schedule, task_.ranks, task_.chunks, task_.micros).empty()) return;
    consider(make_schedule(schedule, task_.ranks, task_.chunks, task_.micros), schedule);
  }

  // `placement` is a schedule with the wanted placement of stages.
  void try_greedy(Schedule placement, bool strict) {
    GreedyTask greedy{{}, task_.micros, max_kept(), strict};
    for (int rank = 0; rank < task_.ranks; ++rank) {
      std::vector<int>& stages = greedy.stages.emplace_back();
      for (int chunk = 0; chunk < task_.chunks; ++chunk)
        stages.push_back(stage_of(placement, task_.ranks, chunk, rank));
    }
    greedy.micros = compared_micros();
    std::vector<Candidate> fastest;
    for (const GreedyRules& rules : tried_rules())
      keep_fastest(fastest, {rules, make_greedy(greedy, cost_, rules)});
    if (greedy.micros < task_.micros) {
      keep_shortest(fastest);
      greedy.micros = task_.micros;
      for (Candidate& each : fastest) each.made = make_greedy(greedy, cost_, each.rules);
    }
    for (const Candidate& each : fastest)
      for (Plan& plan : merged(each.made.plan)) consider(std::move(plan));
  }

  // Variants of the plan with I and W merged into B: on the first stage, whose input gradient no rank waits for, and on
  // all stages if B takes less time on some.
  std::vector<Plan> merged(const Plan& plan) const {
    // No rank waits for the input gradient of the first stage.
    std::vector<Plan> plans{merge_backwards(plan, 0)};
    if (cheaper_whole_) plans.push_back(merge_backwards(plan, std::nullopt));
    return plans;
  }

  std::vector<GreedyRules> tried_rules() const {
    const std::vector<GreedyRules> all = all_rules();
    const auto count = static_cast<int64_t>(all.size());
    const int64_t actions = int64_t{3} * stages() * compared_micros();
    const int64_t tried = std::clamp(kTriedActions / actions, kFewestRules, count);
    std::vector<GreedyRules> rules;
    for (int64_t i = 0; i < tried; ++i) rules.push_back(all[static_cast<size_t>(i * count / tried)]);
    return rules;
  }

  // Micro-batches of the plans by which rules are compared.
  int compared_micros() const {
    const int64_t each = int64_t{3} * stages();  // actions of a micro-batch
    const int64_t enough = std::max(kComparedPerRank * task_.ranks, kComparedActions / each);
    return static_cast<int>(std::min(int64_t{task_.micros}, enough));
  }

  struct Candidate {
    GreedyRules rules;
    GreedyPlan made;
  };

  // Keeps the plans that are shortest with their messages.
  void keep_shortest(std::vector<Candidate>& plans) const {
    for (Candidate& each : plans) {
      double shortest = std::numeric_limits<double>::infinity();
      for (const Plan& plan : merged(each.made.plan))
        shortest = std::min(shortest, simulated(plan, compared_micros()).makespan);
      each.made.seconds = shortest;
    }
    std::stable_sort(plans.begin(), plans.end(),
                     [](const Candidate& a, const Candidate& b) { return a.made.seconds < b.made.seconds; });
    if (plans.size() > kWhole) plans.resize(kWhole);
  }

  static void keep_fastest(std::vector<Candidate>& plans, Candidate plan) {
    const auto slower = [&](const Candidate& other) { return other.made.seconds > plan.made.seconds; };
    const auto place = std::find_if(plans.begin(), plans.end(), slower);
    if (std::any_of(plans.begin(), place,
                    [&](const Candidate& other) { return other.made.plan == plan.made.plan; }))
      return;
    plans.insert(place, std::move(plan));
    if (plans.size() > kSimulated) plans.pop_back();
  }

  // The ranks that look up tokens for the first stage.
  std::vector<int> lookups_of(const Plan& plan) const {
    const std::vector<int> rank_of = stage_ranks(plan);
    std::vector<int> ranks;
    for (const int stage : task_.token_stages) {
      const int rank = rank_of[static_cast<size_t>(stage)];
      if (rank != rank_of.front() && std::find(ranks.begin(), ranks.end(), rank) == ranks.end())
        ranks.push_back(rank);
    }
    return ranks;
  }

  // The plan with lookups, messages, and updates at its end.
  Simulation simulated(const Plan& plan, int micros) const {
    PlanShape shape{.stages = task_.ranks * task_.chunks, .micros = micros};
    CostModel cost = cost_;
    if (!task_.token_stages.empty()) shape.lookups = lookups_of(plan);
    shape.stages += static_cast<int>(shape.lookups.size());
    cost.stages.insert(cost.stages.begin(), shape.lookups.size(), task_.lookup);
    const auto stages = static_cast<size_t>(shape.stages);
    const Plan reduced = add_reduce(add_lookups(plan, shape), std::vector<int>(stages, 1),
                                    std::vector<std::vector<int>>(stages));
    return simulate(add_communication(reduced, Pairs::Apart, static_cast<int>(shape.lookups.size())), shape,
                    cost);
  }

  // Accepts the plan if it fits the limit and is faster than the best so far, or as fast and keeps less.
  void consider(Plan plan, std::optional<Schedule> named = std::nullopt) {
    const Simulation simulation = simulated(plan, task_.micros);
    int kept = 0;
    for (const SimulatedRank& rank : simulation.ranks) kept = std::max(kept, rank.peak_in_flight);
    if (kept > max_kept()) return;
    const double rounding = kEqualTimes * best_.choice.seconds;
    const bool faster = simulation.makespan < best_.choice.seconds - rounding;
    const bool smaller = simulation.makespan <= best_.choice.seconds + rounding && kept < kept_;
    if (!best_.plan.empty() && !faster && !smaller) return;
    best_.plan = std::move(plan);
    best_.choice.seconds = simulation.makespan;
    best_.choice.named = named;
    kept_ = kept;
  }

  const AutomaticTask& task_;
  CostModel cost_;
  bool cheaper_whole_ = false;  // on some stage a B takes less time than I and W
  AutomaticSchedule best_;
  int kept_ = 0;  // the most inputs kept by a rank in the best plan
};

}  // namespace

int default_max_in_flight(int ranks) { return 2 * ranks; }

AutomaticSchedule make_automatic(const AutomaticTask& task, const CostModel& cost) {
  check(static_cast<int>(cost.stages.size()) == task.ranks * task.chunks,
        "costs of {} stages for {} ranks with {} each", cost.stages.size(), task.ranks, task.chunks);
  check(task.max_in_flight > 0, "a schedule with {} micro-batches in flight", task.max_in_flight);
  return AutomaticSearch(task, cost).find();
}

}  // namespace trifold
