#include "launch/planning/goodput_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/bytes_text.h"

namespace trifold::launch {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kHourSeconds = 3600, kDaySeconds = 24 * kHourSeconds;

// A time in the unit that suits it.
std::string length_text(double seconds) {
  if (seconds < 1) return seconds > 0 ? seconds_text(seconds) : "0 s";
  if (seconds < 120) return fmt::format("{:.3g} s", seconds);
  if (seconds < 2 * kHourSeconds) return fmt::format("{:.3g} min", seconds / 60);
  if (seconds < 3 * kDaySeconds) return fmt::format("{:.4g} h", seconds / kHourSeconds);
  return fmt::format("{:.2f} days", seconds / kDaySeconds);
}

// A part that is a difference of equal times may be rounded below zero.
std::string share_text(double part, double all) {
  return fmt::format("{:.2f} %", 100 * std::max(0.0, part / all));
}

// Why a forecast that did not end was given up.
std::string end_text(const RunForecast& forecast) {
  if (forecast.failures > static_cast<double>(kMostFailures))
    return fmt::format("not finished after {} failures: given up", kMostFailures);
  return "not finished in 20 times its work: given up";
}

std::string goodput_text(const RunForecast& forecast) {
  if (!forecast.ended) return end_text(forecast);
  return fmt::format("goodput {}", share_text(forecast.seconds.goodput(), 1));
}

std::string row_line(const GoodputRow& row, bool best, double step) {
  const RunForecast& forecast = row.best();
  const RunSeconds& time = forecast.seconds;
  const double all = time.all();
  const char* mark = best ? "  best" : "";
  std::string notes = row.is_save_interval ? "  (--save-interval)" : "";
  if (!forecast.ended) notes += "  " + end_text(forecast);
  return fmt::format("  {:>9}  {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11}{}{}",
                     row.interval, length_text(static_cast<double>(row.interval) * step),
                     share_text(row.steady, 1), share_text(time.work, all), share_text(time.saving, all),
                     share_text(time.lost, all), share_text(time.down, all), share_text(time.waiting, all),
                     share_text(time.slower, all), fmt::format("{:.1f}", forecast.failures), length_text(all),
                     mark, notes);
}

std::string save_text(const GoodputReport& report) {
  const SaveCosts& costs = report.costs;
  const std::string bytes = bytes_text(static_cast<size_t>(report.checkpoint.all));
  if (costs.tail == 0) return fmt::format("a save of {} stops it for {}", bytes, length_text(costs.stall));
  return fmt::format("a save of {} stops it for {}, and is complete {} later", bytes,
                     length_text(costs.stall), length_text(costs.tail));
}

// What happens when no spare is left.
std::vector<std::string> shortage_lines(const GoodputReport& report, const GoodputConfig& config) {
  const GoodputRow& best = report.rows[report.best];
  const bool shrinks = is_worse(best.waiting, best.shrinking);
  std::vector<std::string> lines = {fmt::format(
      "            {} spare node{}; a node is repaired in {}. Without a spare", config.spare_nodes,
      config.spare_nodes == 1 ? "" : "s", length_text(config.repair_hours * kHourSeconds))};
  lines.push_back(fmt::format("              the run waits for a repair: {}{}", goodput_text(best.waiting),
                              shrinks ? "" : ", as in the table"));
  if (report.smaller.empty()) {
    lines.back() += "; on fewer nodes no number of replicas divides its batch and fits its memory";
    return lines;
  }
  std::string meshes;
  for (const SmallerMesh& smaller : report.smaller)
    meshes +=
        fmt::format("{}dp {} ({} node{}, {} a step)", meshes.empty() ? "" : " or ", smaller.data,
                    smaller.mesh.nodes, smaller.mesh.nodes == 1 ? "" : "s", seconds_text(smaller.mesh.step));
  lines.push_back(fmt::format("              or continues on {}: {}{}", meshes, goodput_text(best.shrinking),
                              shrinks ? ", as in the table" : ""));
  for (const SmallerMesh& smaller : report.smaller)
    if (smaller.mesh.step < report.costs.step)
      lines.push_back(fmt::format(
          "              dp {} takes less time a step than the whole mesh: the run is faster on fewer "
          "ranks from the start",
          smaller.data));
  return lines;
}

// Forecasts with very many failures take fewer trials.
std::string trials_text(const GoodputReport& report, int64_t most) {
  int64_t fewest = most;
  for (const GoodputRow& row : report.rows)
    if (row.best().ended) fewest = std::min(fewest, row.best().trials);
  return fewest == most ? fmt::to_string(most) : fmt::format("{} to {}", fewest, most);
}

// Why the runs have as many steps as they have.
std::string assumed_length(const GoodputReport& report) {
  if (!report.epochs) return " (30 days; give the run's length with --train-iters)";
  return fmt::format(" (30 days; --train-epochs {} depends on the data: give --train-iters)", *report.epochs);
}

Json run_parts_json(const RunForecast& forecast) {
  const RunSeconds& time = forecast.seconds;
  const double all = time.all();
  return {{"goodput", time.goodput()},
          {"saving", time.saving / all},
          {"lost", time.lost / all},
          {"down", time.down / all},
          {"waiting", time.waiting / all},
          {"slower", time.slower / all},
          {"failures", forecast.failures},
          {"seconds", all},
          {"seconds_5_percent", forecast.low_seconds},
          {"seconds_95_percent", forecast.high_seconds},
          {"trials", forecast.trials},
          {"ended", forecast.ended}};
}

}  // namespace

std::vector<std::string> goodput_lines(const GoodputReport& report, const GoodputConfig& config) {
  const RunForecast& best = report.rows[report.best].best();
  std::vector<std::string> lines;
  lines.push_back(
      fmt::format("failures    {} node{} of {} rank{}, each failing every {:g} h: the run fails every {}",
                  report.nodes, report.nodes == 1 ? "" : "s", report.ranks_per_node,
                  report.ranks_per_node == 1 ? "" : "s", *config.mtbf, length_text(report.mtbf)));
  lines.push_back(fmt::format("            {}; a failure is noticed after {}, a restart takes {}",
                              save_text(report), length_text(report.costs.detect),
                              length_text(report.costs.restart)));
  for (std::string& line : shortage_lines(report, config)) lines.push_back(std::move(line));
  lines.push_back(fmt::format("            best interval of saves by Young {}, by Daly {}",
                              length_text(report.young), length_text(report.daly)));
  lines.push_back(fmt::format(
      "goodput     share of the time that goes into steps which count; of {} simulated runs of {} steps{}",
      trials_text(report, config.goodput_trials), report.steps,
      report.steps_are_given ? "" : assumed_length(report)));
  lines.push_back(fmt::format("  {:>9}  {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>11}",
                              "save every", "", "formula", "goodput", "saving", "lost", "down", "waiting",
                              "slower", "failures", "ends after"));
  for (size_t i = 0; i < report.rows.size(); ++i)
    lines.push_back(row_line(report.rows[i], best.ended && i == report.best, report.costs.step));
  lines.push_back(
      best.ended ? fmt::format("            the best of them ends after {}, nine of ten runs after {} to {}",
                               length_text(best.seconds.all()), length_text(best.low_seconds),
                               length_text(best.high_seconds))
                 : "            no interval lets the run finish: save faster, restart sooner, "
                   "or use nodes that fail less");
  return lines;
}

Json to_json(const GoodputReport& report) {
  Json rows = Json::array();
  for (const GoodputRow& row : report.rows)
    rows.push_back({{"save_interval", row.interval},
                    {"seconds", static_cast<double>(row.interval) * report.costs.step},
                    {"closed_form", row.steady},
                    {"waits", run_parts_json(row.waiting)},
                    {"shrinks", report.smaller.empty() ? Json() : run_parts_json(row.shrinking)}});
  Json smaller = Json::array();
  for (const SmallerMesh& mesh : report.smaller)
    smaller.push_back(
        {{"data_parallel_size", mesh.data}, {"nodes", mesh.mesh.nodes}, {"step_seconds", mesh.mesh.step}});
  const GoodputRow& best = report.rows[report.best];
  return {{"nodes", report.nodes},
          {"ranks_per_node", report.ranks_per_node},
          {"mtbf_seconds", report.mtbf},
          {"checkpoint_bytes", report.checkpoint.all},
          {"save_stall_seconds", report.costs.stall},
          {"save_tail_seconds", report.costs.tail},
          {"detect_seconds", report.costs.detect},
          {"restart_seconds", report.costs.restart},
          {"steps", report.steps},
          {"steps_given", report.steps_are_given},
          {"young_seconds", report.young},
          {"daly_seconds", report.daly},
          {"smaller_meshes", std::move(smaller)},
          {"intervals", std::move(rows)},
          {"ended", best.best().ended},
          {"best_save_interval", best.best().ended ? Json(best.interval) : Json()},
          {"goodput", best.best().seconds.goodput()},
          {"run_seconds", best.best().seconds.all()}};
}

}  // namespace trifold::launch
