#include "rehearse/rehearsal_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/bytes_text.h"

namespace trifold {

namespace {

using Json = nlohmann::ordered_json;

// A category of memory, planned and held.
struct MemoryRow {
  std::string name, key;  // as text, and in JSON
  size_t planned, held;
};

// "table state" -> "table_state_bytes"
std::string key_of(std::string name) {
  std::replace(name.begin(), name.end(), ' ', '_');
  return name + "_bytes";
}

std::vector<MemoryRow> memory_rows(const RehearsedRank& rank) {
  std::vector<MemoryRow> parts;
  for (const MemoryPart& part : rank.parts)
    parts.push_back({part.name, key_of(part.name), part.planned, part.held});
  if (!parts.empty()) return parts;
  const MemoryReport &planned = rank.planned, &held = rank.held;
  return {{"weights", "weight_bytes", planned.parameters, held.parameters},
          {"gradients", "gradient_bytes", planned.gradients, held.gradients},
          {"optimizer", "optimizer_bytes", planned.optimizer, held.optimizer},
          {"activations", "activation_bytes", planned.predicted_activations, held.predicted_activations},
          {"work space", "workspace_bytes", planned.workspace, held.workspace},
          {"all", "bytes", planned.predicted_total(), held.predicted_total()},
          {"off-loaded", "offloaded_bytes", planned.offloaded, held.offloaded}};
}

// "the same", "+1.00 MiB (+0.25 %)"
std::string difference_text(size_t planned, size_t held) {
  if (planned == held) return "the same";
  const bool more = held > planned;
  const size_t bytes = more ? held - planned : planned - held;
  std::string text = fmt::format("{}{}", more ? '+' : '-', bytes_text(bytes));
  if (planned == 0) return text;
  const double share = 100 * (static_cast<double>(held) / static_cast<double>(planned) - 1);
  return fmt::format("{} ({:+.2f} %)", text, share);
}

void add_memory_lines(std::vector<std::string>& lines, const ReportedRank& reported) {
  const RehearsedRank& rank = reported.rank;
  const std::vector<MemoryRow> rows = memory_rows(rank);
  const bool began = std::any_of(rows.begin(), rows.end(), [](const MemoryRow& row) { return row.held > 0; });
  lines.push_back(began ? fmt::format("memory      {:>13} {:>12}  {}", "planned", "held", "difference")
                        : fmt::format("memory      {:>13}", "planned"));
  for (const MemoryRow& row : rows) {
    if (row.planned == 0 && row.held == 0) continue;
    std::string line = fmt::format("  {:<11} {:>11}", row.name, bytes_text(row.planned));
    if (began)
      line += fmt::format(" {:>12}  {}", bytes_text(row.held), difference_text(row.planned, row.held));
    lines.push_back(std::move(line));
  }
  if (rank.resident_bytes > 0)
    lines.push_back(fmt::format("  the process grew by {} at most", bytes_text(rank.resident_bytes)));
  if (reported.whole_step)
    lines.push_back(fmt::format("  the step of all {:g} micro-batch{} is planned to need {}",
                                reported.whole_step_micros, reported.whole_step_micros == 1 ? "" : "es",
                                bytes_text(reported.whole_step->predicted_total())));
}

// Three digits that count, without an exponent: "0.0123 x", "1.25 x", "5850 x".
std::string ratio_text(double ratio) {
  constexpr double kLeast = 1e-4, kThreeDigits = 999.5;
  if (ratio < kLeast) return fmt::format("{:.6f} x", ratio);
  if (ratio < kThreeDigits) return fmt::format("{:.3g} x", ratio);
  double unit = 10;
  while (ratio >= kThreeDigits * unit) unit *= 10;
  return fmt::format("{:.0f} x", std::round(ratio / unit) * unit);
}

void add_action_lines(std::vector<std::string>& lines, const ReportedRank& reported) {
  const std::vector<MeasuredAction>& actions = reported.rank.actions;
  if (actions.empty()) return;
  lines.push_back(
      fmt::format("actions        {:>7} {:>12} {:>12}  {}", "a step", "planned", "measured", "ratio"));
  for (size_t i = 0; i < actions.size(); ++i) {
    const MeasuredAction& action = actions[i];
    const std::optional<double> planned =
        i < reported.planned_actions.size() ? reported.planned_actions[i] : std::nullopt;
    const bool compared = planned && *planned > 0;
    lines.push_back(fmt::format("  {:<14} {:>5} {:>12} {:>12}{}",
                                fmt::format("{}{}", action.stage, name_of(action.kind)), action.count,
                                compared ? seconds_text(*planned) : "-", seconds_text(action.median_seconds),
                                compared ? "  " + ratio_text(action.median_seconds / *planned) : ""));
  }
}

void add_call_lines(std::vector<std::string>& lines, const RehearsedRank& rank) {
  if (rank.calls.empty()) return;
  lines.push_back(fmt::format("collectives {:>7} {:>6} {:>12} {:>12} {:>12}", "a step", "ranks", "largest",
                              "all", "planned"));
  for (const MeasuredCall& call : rank.calls)
    lines.push_back(fmt::format("  {:<14} {:<10} {:>2} {:>5} {:>12} {:>12} {:>12}", call.kind, call.group,
                                call.count, call.ranks, bytes_text(static_cast<size_t>(call.bytes)),
                                bytes_text(static_cast<size_t>(call.all_bytes)),
                                call.planned_seconds > 0 ? seconds_text(call.planned_seconds) : "-"));
}

// "rank 24     pipeline rank 3, 3 steps of 2 micro-batches: 1.500 s a step alone"; recommenders have no pipeline.
std::string head_of(const RehearsedRank& rank) {
  const bool has_pipeline = rank.parts.empty();
  std::string line = fmt::format("rank {}", rank.rank);
  if (has_pipeline) line = fmt::format("{:<11} pipeline rank {}", line, rank.pipeline_rank);
  if (rank.steps == 0) return line;
  if (!has_pipeline) line = fmt::format("{:<11}", line);
  line += fmt::format("{} {} step{}", has_pipeline ? "," : "", rank.steps, rank.steps == 1 ? "" : "s");
  if (has_pipeline)
    line += fmt::format(" of {} micro-batch{}", rank.micro_batches, rank.micro_batches == 1 ? "" : "es");
  return line + fmt::format(": {} a step alone", seconds_text(rank.step_seconds));
}

// "measured on rank 8", "as stage 0 of rank 0, scaled by the plan"
std::string source_text(const StageSource& source) {
  return source.scaled ? fmt::format("as stage {} on rank {}, scaled by the plan", source.stage, source.rank)
                       : fmt::format("measured on rank {}", source.rank);
}

bool alike(const StageSource& a, const StageSource& b) {
  return a.scaled && b.scaled && a.rank == b.rank && a.stage == b.stage;
}

void add_source_lines(std::vector<std::string>& lines, const std::vector<StageSource>& sources) {
  for (size_t begin = 0; begin < sources.size();) {
    size_t end = begin + 1;
    while (end < sources.size() && alike(sources[begin], sources[end])) ++end;
    const std::string number =
        end - begin > 1 ? fmt::format("{} to {}", begin, end - 1) : fmt::format("{}", begin);
    lines.push_back(fmt::format("  {:>9}  {}", number, source_text(sources[begin])));
    begin = end;
  }
}

Json seconds_or_null(const std::optional<double>& seconds) { return seconds ? Json(*seconds) : Json(); }

Json memory_json(const RehearsedRank& rank) {
  Json planned, held;
  for (const MemoryRow& row : memory_rows(rank)) {
    planned[row.key] = row.planned;
    held[row.key] = row.held;
  }
  return {
      {"planned", std::move(planned)}, {"held", std::move(held)}, {"resident_bytes", rank.resident_bytes}};
}

}  // namespace

std::vector<std::optional<double>> planned_actions(const PlannedRun& planned, const PlanReport& report,
                                                   const RehearsedRank& rank, bool waited) {
  std::vector<std::optional<double>> seconds;
  for (const MeasuredAction& action : rank.actions)
    seconds.push_back(planned_seconds(planned, report, action, waited));
  return seconds;
}

std::vector<std::string> rank_lines(const ReportedRank& reported) {
  const RehearsedRank& rank = reported.rank;
  std::vector<std::string> lines;
  lines.push_back(head_of(rank));
  for (const std::string& line : rank.loaded) lines.push_back("loaded      " + line);
  for (const std::string& line : rank.notes) lines.push_back("note        " + line);
  if (reported.fails_as)
    lines.push_back(fmt::format("fails       like rank {}", *reported.fails_as));
  else if (!rank.failure.empty())
    lines.push_back("fails       " + rank.failure);
  add_memory_lines(lines, reported);
  add_action_lines(lines, reported);
  add_call_lines(lines, rank);
  return lines;
}

std::vector<std::string> step_lines(const RehearsedStep& step, const PlanReport& report,
                                    const std::string& unit) {
  const int ranks = report.tensor * report.context * report.data * report.pipeline;
  std::vector<std::string> lines;
  lines.push_back(
      fmt::format("stages      of the simulated step of all {} rank{}", ranks, ranks == 1 ? "" : "s"));
  add_source_lines(lines, step.sources);
  const double rate = step.tokens_per_second;
  lines.push_back(fmt::format("step        {}, {} {}/s, bubble {:.2f} %", seconds_text(step.seconds),
                              rate < 100 ? rate_text(rate) : count_text(rate), unit, 100 * step.bubble));
  lines.push_back(fmt::format("            planned: {}, bubble {:.2f} %", seconds_text(report.step_seconds),
                              100 * report.simulation.bubble));
  lines.push_back(fmt::format("            {:.3g} % of {} FLOP/s a rank (MFU against {}); planned {:.3g} %",
                              100 * step.mfu, count_text(report.peak_flops),
                              report.forecast ? "the peak of --hardware" : "--peak-gflops",
                              100 * report.mfu));
  return lines;
}

Json to_json(const ReportedRank& reported) {
  const RehearsedRank& rank = reported.rank;
  Json actions = Json::array(), calls = Json::array();
  for (size_t i = 0; i < rank.actions.size(); ++i) {
    const MeasuredAction& action = rank.actions[i];
    const bool known = i < reported.planned_actions.size();
    actions.push_back(
        {{"kind", name_of(action.kind)},
         {"stage", action.stage},
         {"count", action.count},
         {"planned_seconds", seconds_or_null(known ? reported.planned_actions[i] : std::nullopt)},
         {"measured_seconds", action.median_seconds}});
  }
  for (const MeasuredCall& call : rank.calls)
    calls.push_back({{"kind", call.kind},
                     {"axes", call.group},
                     {"ranks", call.ranks},
                     {"count", call.count},
                     {"largest_bytes", call.bytes},
                     {"all_bytes", call.all_bytes},
                     {"planned_seconds", call.planned_seconds}});
  Json json{{"rank", rank.rank},
            {"pipeline_rank", rank.pipeline_rank},
            {"steps", rank.steps},
            {"micro_batches", rank.micro_batches},
            {"step_seconds", rank.step_seconds},
            {"memory", memory_json(rank)},
            {"actions", std::move(actions)},
            {"collectives", std::move(calls)},
            {"loaded", rank.loaded},
            {"notes", rank.notes}};
  if (reported.whole_step) json["memory"]["whole_step_bytes"] = reported.whole_step->predicted_total();
  json["failure"] = rank.failure.empty() ? Json() : Json(rank.failure);
  return json;
}

Json to_json(const RehearsedStep& step, const PlanReport& report) {
  Json sources = Json::array();
  for (const StageSource& source : step.sources)
    sources.push_back({{"rank", source.rank}, {"stage", source.stage}, {"scaled", source.scaled}});
  return {{"seconds", step.seconds},
          {"planned_seconds", report.step_seconds},
          {"bubble", step.bubble},
          {"tokens_per_second", step.tokens_per_second},
          {"mfu", step.mfu},
          {"planned_mfu", report.mfu},
          {"peak_flops", report.peak_flops},
          {"stages", std::move(sources)}};
}

}  // namespace trifold
