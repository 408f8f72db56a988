#include "schedule/table_step.h"

#include <algorithm>

#include "core/error.h"

namespace trifold {

namespace {

constexpr int kBottom = 0;

Action compute(ActionKind kind, int stage) { return {kind, stage, Action::kAll, 0}; }
Action table(ActionKind kind) { return {kind, 0}; }
Action reduce(int stage) { return {ActionKind::ReduceGrad, stage}; }

// An action, and the actions that must precede it if they are in the plan.
struct Rule {
  Action action;
  std::vector<Action> needs;
};

std::vector<Rule> rules_of(const TableStepShape& shape) {
  using enum ActionKind;
  const int first = shape.has_bottom ? kBottom : -1, last = shape.top();
  const Action bottom = compute(F, first), top = compute(F, last), input = compute(I, last),
               weight = compute(W, last), back = compute(B, first);
  std::vector<Rule> rules{{table(Read), {}},
                          {table(Lookup), {}},
                          {bottom, {}},
                          {table(Collect), {table(Lookup)}},
                          {top, {table(Collect), bottom}},
                          {input, {top}},
                          {table(Return), {input}},
                          {weight, {input}},
                          {reduce(last), {weight}},
                          {back, {input}},
                          {reduce(first), {back}},
                          {table(Loss), {top}},
                          {table(Norm), {reduce(last), reduce(first)}},
                          {table(UpdateRows), {table(Return), table(Loss), table(Norm)}},
                          {table(Step), {reduce(last), reduce(first), table(Loss), table(Norm)}}};
  const auto absent = [&](const Action& action) {
    return action.stage < 0 || (!shape.clips && action == table(Norm));
  };
  std::erase_if(rules, [&](const Rule& rule) { return absent(rule.action); });
  for (Rule& rule : rules) std::erase_if(rule.needs, absent);
  return rules;
}

size_t place_of(const RankPlan& row, const Action& action) {
  return static_cast<size_t>(std::find(row.begin(), row.end(), action) - row.begin());
}

using Line = int;  // line of a rank, in the order of the diagram in the header
constexpr Line kCompute = 0, kExchange = 1, kFetch = 2;

class Walk {
 public:
  Walk(const TableStepShape& shape, TableStepCost cost) : shape_(shape), cost_(cost) {}

  Simulation run(const RankPlan& row) {
    for (const Action& action : row) take(action);
    simulation_.makespan = std::max({now_[kCompute], now_[kExchange], now_[kFetch]});
    simulation_.ranks.resize(3);
    for (int line = 0; line < 3; ++line) {
      SimulatedRank& report = simulation_.ranks[static_cast<size_t>(line)];
      for (const TimelineEntry& entry : simulation_.timeline)
        if (entry.rank == line) report.busy += entry.end - entry.begin;
      report.idle = simulation_.makespan - report.busy;
    }
    simulation_.bubble =
        simulation_.makespan > 0 ? simulation_.ranks[kCompute].idle / simulation_.makespan : 0;
    std::stable_sort(simulation_.timeline.begin(), simulation_.timeline.end(),
                     [](const TimelineEntry& a, const TimelineEntry& b) { return a.rank < b.rank; });
    return std::move(simulation_);
  }

 private:
  // Puts the action on `line`, not before the current time of the row; returns its end. Actions that take no time are
  // not drawn.
  double put(Line line, const Action& action) {
    const double seconds = cost_(action);
    const double begin = std::max(now_[line], now_[kCompute]);
    now_[line] = begin + seconds;
    if (seconds > 0) simulation_.timeline.push_back({line, action, begin, now_[line], line != kCompute});
    return now_[line];
  }
  void take(const Action& action) {
    switch (action.kind) {
      case ActionKind::Read:
        put(shape_.fetches_ahead ? kFetch : kCompute, action);
        return;
      case ActionKind::Return:
        gradients_ = put(kExchange, action);
        return;
      case ActionKind::Collect:
        now_[kCompute] = std::max(now_[kCompute], vectors_);
        return;
      case ActionKind::UpdateRows:
        now_[kCompute] = std::max(now_[kCompute], gradients_);
        break;
      default:
        break;
    }
    put(kCompute, action);
    if (action.kind == ActionKind::Lookup) vectors_ = put(kExchange, table(ActionKind::Collect));
  }

  const TableStepShape& shape_;
  TableStepCost cost_;
  Simulation simulation_;
  double now_[3] = {};
  double vectors_ = 0, gradients_ = 0;  // when they arrive
};

}  // namespace

RankPlan table_forward(const TableStepShape& shape) {
  using enum ActionKind;
  RankPlan row{table(Lookup)};
  if (shape.has_bottom) row.push_back(compute(F, kBottom));
  row.push_back(table(Collect));
  row.push_back(compute(F, shape.top()));
  return row;
}

RankPlan table_step(const TableStepShape& shape) {
  using enum ActionKind;
  RankPlan row = table_forward(shape);
  row.insert(row.begin(), table(Read));
  const auto add = [&](std::initializer_list<Action> actions) { row.insert(row.end(), actions); };
  const int top = shape.top();
  add({compute(I, top), table(Return), compute(W, top), reduce(top)});
  if (shape.has_bottom) add({compute(B, kBottom), reduce(kBottom)});
  add({table(Loss)});
  if (shape.clips) add({table(Norm)});
  add({table(UpdateRows), table(Step)});
  return row;
}

void check_table_step(const RankPlan& row, const TableStepShape& shape) {
  const std::vector<Rule> rules = rules_of(shape);
  for (size_t i = 0; i < row.size(); ++i) {
    const auto rule =
        std::find_if(rules.begin(), rules.end(), [&](const Rule& known) { return known.action == row[i]; });
    const auto wrong = [&](const std::string& why) {
      bad_input("the plan is wrong at action {}, {}: it {}", i + 1, to_string(row[i]), why);
    };
    if (rule == rules.end()) wrong("does not belong to a step of this model");
    if (place_of(row, row[i]) != i) wrong("occurs twice");
    for (const Action& needed : rule->needs)
      if (place_of(row, needed) > i) wrong(fmt::format("comes before {}", to_string(needed)));
  }
  for (const Rule& rule : rules)
    if (place_of(row, rule.action) == row.size())
      bad_input("the plan is wrong: it never reaches {}", to_string(rule.action));
}

Simulation simulate_table_step(const RankPlan& row, const TableStepShape& shape, TableStepCost cost) {
  check_table_step(row, shape);
  return Walk(shape, cost).run(row);
}

}  // namespace trifold
