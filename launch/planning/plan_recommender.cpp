#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/bytes_text.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "files/output_files.h"
#include "launch/commands.h"
#include "launch/placement_lines.h"
#include "launch/planning/goodput_lines.h"
#include "launch/progress.h"
#include "launch/rehearse/rehearsal_lines.h"
#include "launch/stage_lines.h"
#include "plan/pictures/step_svg.h"
#include "recommend/planning/forecast.h"
#include "recommend/planning/goodput.h"
#include "recommend/planning/host_fit.h"
#include "recommend/planning/search.h"
#include "recommend/recommend.h"
#include "recommend/recommender_setup.h"

namespace trifold::launch {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownRanks = 16;  // all are shown

std::string bytes_of(double bytes) { return bytes_text(static_cast<size_t>(bytes)); }

std::string where_of(const TablePlacement& placement, int ranks) {
  if (placement.kind == PlacementKind::Replicated) return "replicated on all ranks";
  if (placement.parts == 1) return fmt::format("whole on rank {}", placement.first_rank);
  return fmt::format("by {}s on {} ranks from {} on", name_of(placement.kind), placement.parts,
                     placement.first_rank % ranks);
}

void print_tables(const RecommendPlan& plan, const PlacementInput& input) {
  fmt::print("tables      {:>6}  {:>12} {:>8}  {:>11}  {}\n", "", "rows", "ids", "bytes", "where");
  const auto tables = plan.placement.tables();
  for (size_t t = 0; t < tables.size(); ++t) {
    const EmbeddingTable& table = tables[t];
    const int64_t bytes = table.rows * (table.width * input.element_bytes + input.state_bytes_of_row);
    fmt::print("  {:>16}  {:>12} {:>8}  {:>11}  {}\n", printable(table.name), table.rows, table.max_ids,
               bytes_of(static_cast<double>(bytes)),
               where_of(plan.placement.choice()[t], plan.placement.ranks()));
  }
}

void print_ranks(const RecommendPlan& plan) {
  fmt::print("ranks       tables with their state; bytes a step moves of them, and sends to other ranks\n");
  fmt::print("  {:>9}  {:>6} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}\n", "rank", "parts", "bytes", "moved",
             "ids", "vectors", "gradients", "copies");
  for (size_t rank = 0; rank < plan.loads.size(); ++rank) {
    if (rank >= kShownRanks && rank + 1 < plan.loads.size()) continue;
    const RankLoad& load = plan.loads[rank];
    fmt::print("  {:>9}  {:>6} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11}\n", rank, load.tables,
               bytes_of(static_cast<double>(load.bytes)), bytes_of(load.moved_bytes()),
               bytes_of(load.ids_out), bytes_of(load.vectors_out), bytes_of(load.vectors_back),
               bytes_of(load.copies_out));
  }
  fmt::print("balance     the busiest rank moves {:.3f} times the mean\n", imbalance(plan.loads));
}

// Prints the memory of the rank that needs most.
void print_memory(const RecommendPlan& plan) {
  const auto most = std::max_element(
      plan.memory.begin(), plan.memory.end(),
      [](const RecommenderMemory& a, const RecommenderMemory& b) { return a.total() < b.total(); });
  fmt::print("memory      {} on rank {}{}: {}\n", bytes_text(most->total()), most - plan.memory.begin(),
             plan.memory.size() > 1 ? ", the most" : "", parts_text(*most));
  if (plan.setup.device != ComputeDevice::Cuda) return;
  size_t all = 0;
  for (const RecommenderMemory& rank : plan.memory) all += rank.on_host(true);
  const size_t host = memory_for_ranks(true);
  fmt::print("hosts       {} of all ranks together, for the tables and batches of their devices{}\n",
             bytes_text(all), host == 0 ? "" : fmt::format("; this host has {}", bytes_text(host)));
}

Json memory_json(const RecommenderMemory& memory) {
  return {{"tables", memory.tables},
          {"table_state", memory.table_state},
          {"exchange", memory.exchange},
          {"dense", memory.dense},
          {"activations", memory.activations},
          {"workspace", memory.workspace},
          {"pinned", memory.pinned},
          {"host", memory.host},
          {"files", memory.files}};
}

void print_times(const RecommendPlan& plan) {
  const auto samples = static_cast<double>(plan.setup.global_batch);
  fmt::print("rates       {:.1f} GFLOP/s, {:.1f} GB/s of memory, {:.1f} GB/s and {:.1f} us between ranks{}\n",
             plan.rates.flops / 1e9, plan.rates.memory / 1e9, plan.rates.link / 1e9, 1e6 * plan.rates.latency,
             plan.measured ? fmt::format("; measured here, {}", plan.host) : "");
  fmt::print("step        {:>16}  {:>12}{}\n", "", "predicted", plan.measured ? "      measured" : "");
  const auto row = [&](std::string_view name, double predicted, double measured) {
    fmt::print("  {:>26}  {:>9.3f} ms", name, 1e3 * predicted);
    fmt::print("{}\n", plan.measured ? fmt::format("  {:>9.3f} ms", 1e3 * measured) : "");
  };
  for (size_t i = 0; i < kStepPartNames.size(); ++i)
    row(kStepPartNames[i], plan.step.times.parts[i], plan.measured ? plan.measured->parts[i] : 0);
  row("step", plan.step.times.step, plan.measured ? plan.measured->step : 0);
  if (plan.measured)
    fmt::print(
        "            parts in steps whose parts are waited for one by one, "
        "the step in others that are not\n");
  fmt::print("            {} samples/s predicted", rate_text(samples / plan.step.times.step));
  fmt::print("{}\n",
             plan.measured ? fmt::format(", {} measured", rate_text(samples / plan.measured->step)) : "");
  if (plan.measured && plan.loads.size() > 1)
    fmt::print("sent        {} of vectors, gradients and copies by rank 0 in a step; {} counted\n",
               bytes_of(plan.formula_vectors), bytes_of(plan.counted_vectors));
}

Json times_json(const StepTimes& times) {
  Json json;
  for (size_t i = 0; i < kStepPartNames.size(); ++i) json[kStepPartNames[i]] = times.parts[i];
  json["step"] = times.step;
  return json;
}

Json to_json(const RecommendPlan& plan) {
  Json tables = Json::array(), ranks = Json::array();
  for (size_t t = 0; t < plan.placement.tables().size(); ++t) {
    const TablePlacement& placement = plan.placement.choice()[t];
    tables.push_back({{"name", plan.placement.tables()[t].name},
                      {"rows", plan.placement.tables()[t].rows},
                      {"max_ids", plan.placement.tables()[t].max_ids},
                      {"placement", name_of(placement.kind)},
                      {"first_rank", placement.first_rank},
                      {"parts", placement.parts}});
  }
  for (size_t rank = 0; rank < plan.loads.size(); ++rank) {
    const RankLoad& load = plan.loads[rank];
    ranks.push_back({{"parts", load.tables},
                     {"bytes", load.bytes},
                     {"moved_bytes", load.moved_bytes()},
                     {"ids_bytes", load.ids_out},
                     {"vectors_bytes", load.vectors_out},
                     {"gradients_bytes", load.vectors_back},
                     {"copies_bytes", load.copies_out},
                     {"memory", memory_json(plan.memory[rank])}});
  }
  Json json{{"tables", std::move(tables)},
            {"ranks", std::move(ranks)},
            {"imbalance", imbalance(plan.loads)},
            {"dense_parameters", plan.step.dense_parameters},
            {"predicted_seconds", times_json(plan.step.times)}};
  if (plan.measured) {
    json["measured_seconds"] = times_json(*plan.measured);
    json["formula_sent_bytes"] = plan.formula_vectors;
    json["counted_sent_bytes"] = plan.counted_vectors;
  }
  return json;
}

std::string recommender_text(const RecommendConfig& run) {
  return fmt::format("{} rank{}, placement {}{}", run.mesh.ranks, run.mesh.ranks == 1 ? "" : "s",
                     run.placement.placement.text(), run.placement.bf16_exchange ? ", vectors in bf16" : "");
}

Json recommender_search_json(const RecommenderSearch& search) {
  Json layouts = Json::array();
  for (const FoundRecommender& found : search.best)
    layouts.push_back({{"ranks", found.run.mesh.ranks},
                       {"placement", found.run.placement.placement.text()},
                       {"bf16_exchange", found.run.placement.bf16_exchange},
                       {"step_seconds", found.step_seconds},
                       {"bytes", found.bytes},
                       {"imbalance", found.imbalance},
                       {"bound", found.bound},
                       {"options", found.words}});
  return {{"candidates", search.layouts}, {"fitting", search.fitting}, {"layouts", std::move(layouts)}};
}

int run_recommender_search(const PlanRecommenderConfig& config) {
  const RecommenderSearch search = search_recommender(config);
  const auto samples = static_cast<double>(config.run.training.global_batch_size);
  const auto& limit = config.run.placement.memory_limit;
  fmt::print("search      {} layouts of at most {} ranks, {} fit{}\n", search.layouts, config.run.mesh.ranks,
             search.fitting, limit ? fmt::format(" in {:.1f} GiB a rank", *limit) : "");
  fmt::print("  {:>3}  {:>11}  {:>11}  {:>10}  {:>7}  {:<28}  {}\n", "", "step", "samples/s", "memory",
             "balance", "bound by", "layout");
  for (size_t place = 0; place < search.best.size(); ++place) {
    const FoundRecommender& found = search.best[place];
    fmt::print("  {:>3}  {:>8.3f} ms  {:>11}  {:>10}  {:>7.3f}  {:<28}  {}\n", place + 1,
               1e3 * found.step_seconds, count_text(samples / found.step_seconds), bytes_text(found.bytes),
               found.imbalance, found.bound, recommender_text(found.run));
  }
  fmt::print("best        {}\n", fmt::join(search.best.front().words, " "));
  if (config.json)
    write_file("--json", *config.json,
               marked_json(json_text(recommender_search_json(search), 2) + "\n", "plan"));
  return kDone;
}

int show_plan(const PlanRecommenderConfig& config) {
  if (config.json) check_writable_file("--json", *config.json);
  if (config.search) return run_recommender_search(config);
  if (config.svg) check_writable_file("--svg", *config.svg);
  const RecommendPlan plan = make_recommend_plan(config);
  const PlacementInput input = placement_input(config.run, plan.setup.schema, config.run.mesh.ranks);
  double rows = 0, bytes = 0;
  for (const EmbeddingTable& table : plan.placement.tables()) {
    rows += static_cast<double>(table.rows);
    bytes += static_cast<double>(table.rows * (table.width * input.element_bytes + input.state_bytes_of_row));
  }
  fmt::print(
      "model       {} tables with {:.0f} rows of {} numbers, {} with their state; {} parameters in MLPs, "
      "{:.3g} MFLOP a sample\n",
      plan.placement.tables().size(), rows, plan.setup.model.row(), bytes_of(bytes),
      plan.step.dense_parameters, plan.step.flops_of_sample / 1e6);
  fmt::print("batch       {} samples over {} rank{}\n", plan.setup.global_batch, plan.placement.ranks(),
             plan.placement.ranks() == 1 ? "" : "s");
  std::optional<GoodputReport> goodput;
  if (config.goodput.mtbf) goodput = recommender_goodput(config, plan);
  if (goodput)
    for (const std::string& line : goodput_lines(*goodput, config.goodput)) fmt::print("{}\n", line);
  print_tables(plan, input);
  print_ranks(plan);
  print_memory(plan);
  print_times(plan);
  fmt::print("actions     {}", to_string(Plan{plan.step.row}));
  print_rehearsal_command(config.rehearsal_words);
  if (config.svg)
    write_file("--svg", *config.svg,
               marked_svg(timeline_svg(plan.step.simulation, picture_text(plan)), "plan"));
  if (config.json) {
    Json json = to_json(plan);
    if (goodput) json["goodput"] = launch::to_json(*goodput);
    write_file("--json", *config.json, marked_json(json_text(json, 2) + "\n", "plan"));
  }
  return kDone;
}

}  // namespace

int run(const PlanRecommenderConfig& config) {
  PlanRecommenderConfig with_model = config;
  with_model.run = with_model_of_start(std::move(with_model.run));
  return show_plan(with_model);
}

}  // namespace trifold::launch
