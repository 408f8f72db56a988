// Damaged plans. Whatever happens to a plan, check_plan and simulate end: with an Error, or because the plan
// is valid all the same. Valid means here, independently of what check_plan does, that the rows hold the same
// actions as before, each on its rank: only their order may have changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "core/error.h"
#include "schedule/simulate.h"
#include "unit/schedule_testing.h"

namespace trifold {
namespace {

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  // The standard's distributions differ between libraries; this is the same everywhere.
  size_t below(size_t count) { return random_() % count; }

  // Does one thing to the plan and says what.
  std::string damage(Plan& plan) {
    const size_t rank = below(plan.size());
    RankPlan& row = plan[rank];
    if (row.empty()) return "nothing";
    const size_t at = below(row.size());
    Action& action = row[at];
    const std::string place = where(plan, rank, at);
    const auto here = row.begin() + static_cast<std::ptrdiff_t>(at);
    switch (below(9)) {
      case 0:
        row.erase(here);
        return "delete " + place;
      case 1:
        insert(plan[below(plan.size())], Action(action));
        return "duplicate " + place;
      case 2:
        std::swap(action, row[below(row.size())]);
        return "swap " + place;
      case 3:
        if (at + 1 < row.size()) std::swap(action, row[at + 1]);
        return "swap with the next " + place;
      case 4:
        action.micro = static_cast<int>(below(12)) - 1;
        return "renumber the micro-batch of " + place;
      case 5:
        action.stage = static_cast<int>(below(10)) - 1;
        return "renumber the stage of " + place;
      case 6:
        action.kind = static_cast<ActionKind>(below(13));
        return "change the kind of " + place;
      case 7: {
        const Action moved = action;
        row.erase(here);
        insert(plan[below(plan.size())], moved);
        return "move " + place;
      }
      default:
        (below(2) == 0 ? action.version : action.block) = static_cast<int>(below(4)) - 1;
        return "change the version or block of " + place;
    }
  }

 private:
  void insert(RankPlan& row, const Action& action) {
    row.insert(row.begin() + static_cast<std::ptrdiff_t>(below(row.size() + 1)), action);
  }

  std::mt19937 random_;
};

std::vector<std::vector<std::string>> actions_of_rows(const Plan& plan) {
  std::vector<std::vector<std::string>> rows;
  for (const RankPlan& row : plan) {
    rows.emplace_back();
    for (Action action : row) {
      // These plans have one bucket a stage, so that both forms mean the same.
      if (action.kind == ActionKind::ReduceGrad && action.block == 0) action.block = Action::kAll;
      rows.back().push_back(to_string(action));
    }
    std::sort(rows.back().begin(), rows.back().end());
  }
  return rows;
}

void expect_complete(const Simulation& simulation, const Plan& damaged, const Plan& original,
                     const std::string& what) {
  EXPECT_EQ(actions_of_rows(damaged), actions_of_rows(original)) << what << " was accepted";
  size_t actions = 0;
  for (const RankPlan& row : damaged) actions += row.size();
  EXPECT_EQ(simulation.timeline.size(), actions) << what;
  for (const SimulatedRank& rank : simulation.ranks) EXPECT_GE(rank.idle, 0) << what;
}

std::vector<test::Complete> valid_plans() {
  std::vector<test::Complete> plans;
  for (std::string_view name : schedule_names()) {
    const Schedule schedule = *find_schedule(name);
    const bool async = is_async(schedule);
    const int chunks = needs_two_chunks(schedule) || schedule == Schedule::Interleaved ? 2 : 1;
    for (const int ranks : {2, 3}) {
      const int micros = async ? ranks : 2 * ranks;
      const Plan compute =
          async ? make_async(schedule, ranks, micros, 2) : make_schedule(schedule, ranks, chunks, micros);
      plans.push_back(test::complete(compute, async ? 2 * micros : micros, ranks == 3 && chunks == 1, ranks));
      if (!async) plans.push_back(test::complete(compute, micros, ranks == 3, ranks, Pairs::Apart, true));
    }
  }
  return plans;
}

TEST(Mutation, DamagedPlansAreRejectedOrStillRun) {
  Mutator mutator(20240607);
  int tried = 0;
  int rejected = 0;
  for (const auto& [plan, shape] : valid_plans()) {
    CostModel cost;
    cost.stages.resize(static_cast<size_t>(shape.stages));
    EXPECT_NO_THROW(simulate(plan, shape, cost));
    for (int i = 0; i < 300; ++i) {
      Plan damaged = plan;
      std::string what = mutator.damage(damaged);
      if (i % 4 == 3) what += ", " + mutator.damage(damaged);
      if (damaged == plan) continue;
      ++tried;
      try {
        expect_complete(simulate(damaged, shape, cost), damaged, plan, what);
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::BadInput) << what << ": " << error.what();
        ++rejected;
      }
    }
  }
  EXPECT_GE(tried, 4000);
  // Most damage is fatal. Harmless: neighbours that do not depend on each other were swapped.
  EXPECT_GT(rejected, tried * 3 / 4);
  EXPECT_LT(rejected, tried);
}

// The pass that writes messages meets damaged plans as well, in a user's file.
TEST(Mutation, PassesEndOnDamagedOrders) {
  Mutator mutator(7);
  int rejected = 0;
  for (std::string_view name : {"1f1b", "zb-v", "dualpipe-v", "interleaved"}) {
    const Plan plan = make_schedule(*find_schedule(name), 3, name == "1f1b" ? 1 : 2, 6);
    for (int i = 0; i < 100; ++i) {
      Plan damaged = plan;
      const std::string what = mutator.damage(damaged);
      try {
        const auto [complete, shape] = test::complete(damaged, 6);
        check_plan(complete, shape);
        EXPECT_EQ(complete.size(), plan.size()) << what;
      } catch (const Error&) {
        ++rejected;
      }
    }
  }
  EXPECT_GT(rejected, 200);
}

}  // namespace
}  // namespace trifold
