#include <fmt/core.h>

#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/command_line/commands.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/printable.h"
#include "files/output_files.h"
#include "launch/click_lines.h"
#include "launch/commands.h"
#include "launch/say.h"
#include "launch/signals.h"
#include "recommend/click_metrics.h"
#include "recommend/group_metrics.h"
#include "recommend/trained_recommender.h"
#include "run/terms.h"

namespace trifold::launch {

namespace {

struct RecommenderEvaluation {
  TrainedRecommender recommender;
  std::optional<int> group;     // table of --group-by
  std::vector<int64_t> places;  // of --metric-at-k
  RunTerms terms;
};

int table_named(const ClickSchema& schema, const std::string& name) {
  std::vector<std::string> names;
  for (const ClickTable& table : schema.tables) {
    if (table.name == name) return static_cast<int>(names.size());
    names.push_back(table.name);
  }
  bad_input("--group-by {}: there is no such table; there are {}", printable(name), fmt::join(names, ", "));
}

RecommenderEvaluation prepare(const EvaluateRecommenderConfig& config) {
  RecommenderEvaluation job;
  if (config.json) check_writable_file("--json", *config.json);
  job.recommender = open_recommender(config.run);
  const ClickSchema& schema = job.recommender.samples().schema();
  if (!schema.labeled)
    bad_input("{}: has no labels, which an evaluation needs: trifold score predicts without them",
              config.run.data);
  if (config.group_by) job.group = table_named(schema, *config.group_by);
  if (config.metric_at_k) job.places = config.metric_at_k->numbers();
  EvaluateRecommenderConfig asked = config;
  job.terms.add(options_of(asked));
  add_terms(job.terms, job.recommender);
  return job;
}

struct ClickResults {
  ClickScores scores;
  std::optional<GroupScores> groups;
};

// nullopt if a signal stopped it. Collective.
std::optional<ClickResults> measure(Communicator& world, const RecommenderEvaluation& job,
                                    const std::atomic<int>& signal) {
  ClickResults results;
  ClickMetrics metrics;
  GroupMetrics groups(job.places);
  const auto take = [&](const Recommender::Scored& scored, Stream&) {
    const ClickBatch& batch = *scored.batch;
    metrics.add(scored.logits.flat(), batch.labels, batch.weights, batch.first_sample);
    if (!job.group) return;
    const auto table = static_cast<size_t>(*job.group);
    groups.add(scored.logits.flat(), batch.labels, batch.weights, batch.lengths[table], batch.ids[table]);
  };
  const auto finish = [&](Stream& stream) {
    results.scores = metrics.finish(world, stream);
    if (job.group) results.groups = groups.finish(world, stream);
  };
  if (!predict_clicks(world, job.recommender, signal, take, finish)) return std::nullopt;
  return results;
}

nlohmann::ordered_json to_json(const RecommenderEvaluation& job, const ClickResults& results,
                               double seconds) {
  nlohmann::ordered_json object{{"checkpoint", job.recommender.directory}, {"step", job.recommender.step}};
  add_scores(object, results.scores);
  object["clicks"] = results.scores.clicks;
  if (results.groups) {
    object["gauc"] = score_json(results.groups->gauc);
    object["gauc_groups"] = results.groups->groups;
    object["gauc_samples"] = results.groups->samples;
    object["clicked_groups"] = results.groups->clicked_groups;
    for (const TopScores& top : results.groups->top) {
      object[fmt::format("ndcg_at_{}", top.k)] = score_json(top.ndcg);
      object[fmt::format("hit_rate_at_{}", top.k)] = score_json(top.hit_rate);
    }
  }
  object["seconds"] = seconds;
  return object;
}

}  // namespace

int run(const EvaluateRecommenderConfig& config, Ranks& ranks) {
  RecommenderEvaluation job;
  ranks.agree([&] { job = prepare(config); });
  ranks.compare(job.terms);
  const std::atomic<int>& signal = catch_signals();
  const auto start = Clock::now();
  bool is_reporter = false;             // the process of rank 0
  std::optional<ClickResults> results;  // set in the process of rank 0
  ranks.run(config.run.mesh, [&](Communicator& world) {
    const std::optional<ClickResults> mine = measure(world, job, signal);
    if (world.rank() != 0) return;
    is_reporter = true;
    results = mine;
  });
  if (!is_reporter) return kDone;
  for (const std::string& note : job.recommender.data.notes)
    say(stderr, fmt::format("{}\n", printable_message(note)));
  if (!results) {
    say(stderr, "trifold: stopped on a signal before all samples were evaluated\n");
    return kFailed;
  }
  const double seconds = seconds_since(start);
  const ClickScores& scores = results->scores;
  fmt::print("AUC {}  {}\n", score_text(scores.auc), scores_text(scores));
  if (const auto& groups = results->groups) {
    fmt::print("GAUC {} by {}: {} groups with both labels, {} samples\n", score_text(groups->gauc),
               printable(*config.group_by), groups->groups, groups->samples);
    for (const TopScores& top : groups->top)
      fmt::print("NDCG@{} {}  hit rate@{} {} by {}: {} groups with a click\n", top.k, score_text(top.ndcg),
                 top.k, score_text(top.hit_rate), printable(*config.group_by), groups->clicked_groups);
  }
  fmt::print("{} samples, {} clicked, by {} (step {}) in {:.1f} s\n", scores.samples, scores.clicks,
             job.recommender.directory, job.recommender.step, seconds);
  if (config.json) write_file("--json", *config.json, to_json(job, *results, seconds).dump(2) + "\n");
  return kDone;
}

}  // namespace trifold::launch
