#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "clicks/click_layout.h"
#include "config/commands/commands.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "files/output_files.h"
#include "launch/click_lines.h"
#include "launch/commands.h"
#include "launch/process/signals.h"
#include "launch/say.h"
#include "monitor/click_records.h"
#include "recommend/dropped_negatives.h"
#include "recommend/metrics/group_metrics.h"
#include "recommend/metrics/label_metrics.h"
#include "recommend/trained_recommender.h"
#include "run/terms.h"

namespace trifold::launch {

namespace {

struct RecommenderEvaluation {
  TrainedRecommender recommender;
  std::optional<ClickValues> groups;  // groups of all samples, with --group-by
  std::vector<int64_t> ks;            // --metric-at-k
  RunTerms terms;
};

// The values of a column of the samples, which need not be a feature if the file is preprocessed here.
ClickValues groups_by(const TrainedRecommender& recommender, const std::string& name) {
  std::vector<std::string> names;
  for (const ClickTable& table : recommender.schema.tables) {
    if (table.name == name || table.name == table_name_of(name))
      return recommender.samples().first_values(static_cast<int>(names.size()));
    names.push_back(table.name);
  }
  if (auto values = values_of_column(recommender.config.data, name)) {
    const int64_t samples = recommender.samples().samples(), found = std::ssize(values->of_samples);
    if (found != samples)
      bad_input(
          "--group-by {}: {} lines of {} can be read with this column, and {} without it: repair the others",
          printable(name), found, recommender.config.data.train_data, samples);
    return std::move(*values);
  }
  bad_input(
      "--group-by {}: {} has no such table; it has {}. Columns that are no features can be named if --data is a file "
      "that is preprocessed first",
      printable(name), recommender.config.data.train_data, fmt::join(names, ", "));
}

// The groups of a batch; padding has none.
std::vector<uint64_t> groups_of(const ClickBatch& batch, const ClickValues& values) {
  std::vector<uint64_t> groups(static_cast<size_t>(batch.samples), GroupMetrics::kNoGroup);
  for (int64_t i = 0; i < batch.real; ++i)
    groups[static_cast<size_t>(i)] = values.of_samples[static_cast<size_t>(batch.first_sample + i)];
  return groups;
}

RecommenderEvaluation prepare(const EvaluateRecommenderConfig& config) {
  RecommenderEvaluation job;
  if (config.json) check_writable_file("--json", *config.json);
  job.recommender = open_recommender(config.run, {config.unlabelled});
  const ClickSchema& schema = job.recommender.samples().schema();
  if (!schema.labeled)
    bad_input("{} has no labels, which an evaluation needs: trifold score predicts without them",
              config.run.data);
  // Metrics compare predictions with these samples, which may lack a share of their negatives too.
  job.recommender.logit_offset -= odds_correction(schema, job.recommender.config.model);
  if (config.group_by) job.groups = groups_by(job.recommender, *config.group_by);
  if (config.metric_at_k) job.ks = config.metric_at_k->numbers();
  EvaluateRecommenderConfig asked = config;
  job.terms.add(options_of(asked));
  add_terms(job.terms, job.recommender);
  return job;
}

struct ClickResults {
  std::vector<LabelScores> labels;
  std::vector<GroupScores> groups;  // [label], with --group-by
  std::vector<TableUnknowns> unknown;
};

bool counts_nothing(const ClickResults& results) {
  return std::all_of(results.labels.begin(), results.labels.end(),
                     [](const LabelScores& label) { return label.scores.samples == 0; });
}

// nullopt if a signal stopped it. Collective.
std::optional<ClickResults> measure(Communicator& world, const RecommenderEvaluation& job,
                                    const std::atomic<int>& signal) {
  ClickResults results;
  const std::vector<std::string>& names = job.recommender.schema.labels;
  LabelMetrics metrics(job.recommender.schema);
  LabelReader reader;
  std::vector<GroupMetrics> groups(job.groups ? std::max<size_t>(1, names.size()) : 0, GroupMetrics(job.ks));
  const auto take = [&](const Recommender::Scored& scored, Stream&) {
    metrics.add(scored);
    if (!job.groups) return;
    const std::vector<uint64_t> of_samples = groups_of(*scored.batch, *job.groups);
    for (size_t l = 0; l < groups.size(); ++l) {
      const LabelColumns columns = reader.of(scored, std::ssize(groups), static_cast<int64_t>(l));
      groups[l].add(columns.logits, columns.labels, columns.weights, of_samples);
    }
  };
  const auto finish = [&](Stream& stream, const std::vector<TableUnknowns>& unknown) {
    results.labels = metrics.finish(world, stream);
    for (GroupMetrics& of_label : groups) results.groups.push_back(of_label.finish(world, stream));
    results.unknown = unknown;
  };
  if (!predict_clicks(world, job.recommender, signal, take, finish)) return std::nullopt;
  return results;
}

void add_groups(nlohmann::ordered_json& object, const GroupScores& groups) {
  object["gauc"] = score_json(groups.gauc);
  object["gauc_groups"] = groups.groups;
  object["gauc_samples"] = groups.samples;
  object["clicked_groups"] = groups.clicked_groups;
  for (const TopScores& top : groups.top) {
    object[fmt::format("ndcg_at_{}", top.k)] = score_json(top.ndcg);
    object[fmt::format("hit_rate_at_{}", top.k)] = score_json(top.hit_rate);
  }
}

nlohmann::ordered_json to_json(const RecommenderEvaluation& job, const ClickResults& results,
                               double seconds) {
  nlohmann::ordered_json object{{"checkpoint", job.recommender.directory}, {"step", job.recommender.step}};
  add_label_scores(object, results.labels);
  const bool single = results.labels.size() == 1;
  for (size_t l = 0; l < results.labels.size(); ++l) {
    const LabelScores& label = results.labels[l];
    nlohmann::ordered_json& of_label = single ? object : object["labels"][label.label];
    of_label["clicks"] = label.scores.clicks;
    if (!results.groups.empty()) add_groups(of_label, results.groups[l]);
  }
  if (job.groups) object["ungrouped_unknown_samples"] = job.groups->unknown;
  object["logit_correction"] = job.recommender.logit_offset;
  object["unknown_values"] = unknown_json(results.unknown);
  object["seconds"] = seconds;
  return object;
}

void print_groups(const GroupScores& groups, const std::string& label, const std::string& by) {
  fmt::print("{}GAUC {} by {}: {} groups with both labels, {} samples\n", label, score_text(groups.gauc), by,
             groups.groups, groups.samples);
  for (const TopScores& top : groups.top)
    fmt::print("{}NDCG@{} {}  hit rate@{} {} by {}: {} groups with a click\n", label, top.k,
               score_text(top.ndcg), top.k, score_text(top.hit_rate), by, groups.clicked_groups);
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
  if (counts_nothing(*results))
    bad_input("{}: all sample weights are 0, so there is nothing to evaluate", config.run.data);
  const double seconds = seconds_since(start);
  for (size_t l = 0; l < results->labels.size(); ++l) {
    const LabelScores& label = results->labels[l];
    fmt::print("{}AUC {}  {}\n", label_text(label), score_text(label.scores.auc), scores_text(label.scores));
    if (!results->groups.empty())
      print_groups(results->groups[l], label_text(label), printable(*config.group_by));
    fmt::print("{}{} samples, {} clicked, by {} (step {}) in {:.1f} s\n", label_text(label),
               label.scores.samples, label.scores.clicks, job.recommender.directory, job.recommender.step,
               seconds);
  }
  if (const std::string line = correction_line(job.recommender.logit_offset); !line.empty())
    fmt::print("{}\n", line);
  if (job.groups && job.groups->unknown > 0)
    fmt::print(
        "{} samples are in no group: their value of {} is not in the dictionary, and the data do not say which it is; "
        "preprocess --dictionaries-of keeps such values\n",
        job.groups->unknown, printable(*config.group_by));
  for (const std::string& line : unknown_lines(results->unknown))
    say(line.starts_with("warning") ? stderr : stdout, line + "\n");
  if (config.json)
    write_file("--json", *config.json,
               marked_json(json_text(to_json(job, *results, seconds), 2) + "\n", "evaluate"));
  return kDone;
}

}  // namespace trifold::launch
