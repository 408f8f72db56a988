// `trifold rehearse` of recommenders: checks a run as its start would, then runs chosen ranks alone.
#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/read_json.h"
#include "files/output_files.h"
#include "launch/commands.h"
#include "launch/rehearse/rehearsal_lines.h"
#include "recommend/planning/host_fit.h"
#include "rehearse/alone.h"
#include "rehearse/rehearsal_report.h"
#include "rehearse/rehearse_recommender.h"
#include "rehearse/rehearsed_clicks.h"

namespace trifold::launch {

namespace {

using Json = nlohmann::ordered_json;

std::vector<int> default_ranks(const std::vector<RecommenderMemory>& memory) {
  std::vector<size_t> bytes;
  for (const RecommenderMemory& rank : memory) bytes.push_back(rank.total());
  return first_fullest_last(bytes);
}

RehearseOptions options_with(const RehearseConfig& config, const PlanRecommenderConfig& plan) {
  PlannedMachine machine;
  machine.bytes_per_second = 1e9 * plan.link_bandwidth;
  machine.message_latency = 1e-6 * plan.link_latency;
  return {.steps = config.steps,
          .micro_batches = std::nullopt,
          .machine = machine,
          .waits = config.wait == PeerWait::Planned,
          .expert_load = 1,
          .zipf_exponent = config.zipf};
}

void print_head(const RecommendJob& job, const RecommendPlan& plan) {
  fmt::print("batch       {} samples over {} rank{}\n", plan.setup.global_batch, plan.loads.size(),
             plan.loads.size() == 1 ? "" : "s");
  const bool made_up = job.config.data.train_data == "synthetic";
  fmt::print("checks      passed, as at the start of the run: options, outputs; {}; {}\n",
             made_up ? "random clicks (as with --train-data synthetic)" : "data",
             job.start.from ? "the checkpoint in " + *job.start.from : "no checkpoint");
  for (const std::string& note : job.data.notes) fmt::print("data        {}\n", note);
}

ReportedRank rehearse(const RecommendJob& job, const RecommendPlan& plan, int rank,
                      const RehearseOptions& options) {
  ReportedRank reported;
  if (const std::string misfit = misfit_alone(job.config, plan.setup, rank); !misfit.empty()) {
    reported.rank.rank = rank;
    reported.rank.parts = {{"all", plan.memory[static_cast<size_t>(rank)].total(), 0}};
    reported.rank.failure = "it " + misfit;
  } else {
    reported.rank = rehearse_rank(job, rank, options);
  }
  reported.planned_actions = planned_actions(plan, reported.rank);
  return reported;
}

}  // namespace

int run(const RehearseRecommenderConfig& config) {
  if (config.plan.json) check_writable_file("--json", *config.plan.json);
  PlanRecommenderConfig planned = config.plan;
  take_cores(planned.run.mesh);
  const RecommendJob job = prepare(planned.run, RanksHere::OneAlone);
  if (!job.finished.empty()) {
    fmt::print("trifold: {}; nothing is left to rehearse\n", job.finished);
    return kDone;
  }
  planned.run = job.config;
  const RecommendPlan plan = plan_on_schema(planned, job.data.schema());
  print_head(job, plan);
  const RehearseOptions options = options_with(config.rehearse, planned);
  std::vector<RehearsedRank> rehearsed;
  RankFailures failures;
  Json all = Json::array();
  for (const int rank :
       config.rehearse.only_ranks ? config.rehearse.only_ranks->ranks : default_ranks(plan.memory)) {
    ReportedRank reported = rehearse(job, plan, rank, options);
    reported.fails_as = failures.add(reported.rank);
    print_lines(rank_lines(reported));
    all.push_back(to_json(reported));
    rehearsed.push_back(reported.rank);
  }
  const auto step = simulate_rehearsed(plan, rehearsed, options.waits);
  if (step) print_lines(step_lines(*step, plan));
  print_failures(failures);
  if (config.plan.json) {
    const Json whole{{"ranks", std::move(all)},
                     {"step", step ? to_json(*step, plan) : Json()},
                     {"failures", failures.all()}};
    write_file("--json", *config.plan.json, marked_json(json_text(whole, 2) + "\n", "rehearse"));
  }
  return failures.empty() ? kDone : kFailed;
}

}  // namespace trifold::launch
