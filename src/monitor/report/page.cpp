#include "monitor/report/page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/bytes_text.h"
#include "core/error.h"
#include "core/markup_text.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "monitor/report/chart.h"
#include "monitor/report/page_style.h"
#include "monitor/report/planned_step.h"
#include "plan/pictures/step_svg.h"

namespace trifold {

namespace {

// Colors that people with any color vision tell apart (Okabe and Ito).
constexpr std::array kColors{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"};
constexpr const char* kWarning = "#c00000";
constexpr const char* kSaved = "#9aa5b1";
constexpr size_t kMostEvents = 500;
constexpr size_t kMostCharts = 80;

// Text from a log or a path, safe in the page.
std::string safe(std::string_view text) { return markup_text(printable_message(text)); }

std::string text_of(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    std::vector<std::string> items;
    for (const nlohmann::json& item : value) items.push_back(text_of(item));
    return fmt::format("{}", fmt::join(items, " "));
  }
  return json_text(value);
}

// A member of the start of a log, as text; "" if it is absent.
std::string start_text(const RunLog& run, const char* name) {
  return run.start.is_object() && run.start.contains(name) ? text_of(run.start[name]) : "";
}
std::optional<double> start_number(const RunLog& run, const char* name) {
  if (!run.start.is_object() || !run.start.contains(name) || !run.start[name].is_number()) return {};
  return run.start[name].get<double>();
}

std::vector<double> sorted_values(const Curve& curve) {
  std::vector<double> values;
  for (const CurvePoint& point : curve) values.push_back(point.value);
  std::sort(values.begin(), values.end());
  return values;
}
double quantile(const std::vector<double>& sorted, double share) {
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(share * static_cast<double>(sorted.size())))];
}

bool is_problem(const RunEvent& event) { return event.kind != "saved"; }

class Page {
 public:
  explicit Page(const std::vector<RunLog>& runs) : runs_(runs) {
    for (const RunLog& run : runs) planned_.push_back(planned_step(run.start));
  }

  std::string text() {
    print(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>Trifold: {} run{}</title>\n{}</head>"
        "<body>\n",
        runs_.size(), runs_.size() == 1 ? "" : "s", kPageStyle);
    print("<h1>Trifold: {}</h1>\n",
          runs_.size() == 1 ? safe(runs_[0].path) : fmt::format("{} runs", runs_.size()));
    summary();
    curves();
    step_times();
    plans();
    events();
    checkpoints();
    options();
    print("</body></html>\n");
    return std::move(text_);
  }

 private:
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }
  const char* color(size_t run) const { return kColors[run % kColors.size()]; }
  std::string key(size_t run) const {
    return fmt::format("<span class=\"key\" style=\"background:{}\"></span>{}", color(run),
                       safe(runs_[run].path));
  }

  // One row for each property of the runs, one column for each run.
  void row(std::string_view name, const std::vector<std::string>& cells, bool marks_differences = false) {
    if (std::all_of(cells.begin(), cells.end(), [](const std::string& cell) { return cell.empty(); })) return;
    const bool differs = marks_differences && std::set<std::string>(cells.begin(), cells.end()).size() > 1;
    print("<tr{}><th>{}</th>", differs ? " class=\"differs\"" : "", safe(name));
    for (const std::string& cell : cells) print("<td>{}</td>", safe(cell));
    print("</tr>\n");
  }
  template <class Cell>
  void row_of(std::string_view name, Cell&& cell) {
    std::vector<std::string> cells;
    for (size_t run = 0; run < runs_.size(); ++run) cells.push_back(cell(run));
    row(name, cells);
  }
  void head_of_runs() {
    print("<table><tr><th></th>");
    for (size_t run = 0; run < runs_.size(); ++run) print("<th>{}</th>", key(run));
    print("</tr>\n");
  }

  std::string last_value(size_t run, const char* path) const {
    const Curve& curve = runs_[run].curve(path);
    return curve.empty() ? "" : fmt::format("{:.6g} (step {})", curve.back().value, curve.back().step);
  }
  std::string best_value(size_t run, const char* path, bool higher) const {
    const Curve& curve = runs_[run].curve(path);
    if (curve.empty()) return "";
    const auto less = [](const CurvePoint& a, const CurvePoint& b) { return a.value < b.value; };
    const CurvePoint best = higher ? *std::max_element(curve.begin(), curve.end(), less)
                                   : *std::min_element(curve.begin(), curve.end(), less);
    return fmt::format("{:.6g} (step {})", best.value, best.step);
  }
  std::string median_value(size_t run, const char* path) const {
    const Curve& curve = runs_[run].curve(path);
    return curve.empty() ? "" : count_text(quantile(sorted_values(curve), 0.5));
  }

  void summary() {
    head_of_runs();
    for (const char* name : {"command", "mesh", "operations"})
      row_of(name, [&](size_t run) { return start_text(runs_[run], name); });
    row_of("parameters", [&](size_t run) {
      const auto count = start_number(runs_[run], "parameters");
      return count ? count_text(*count) : "";
    });
    row_of("steps", [&](size_t run) {
      const std::string last = start_text(runs_[run], "last_step");
      return fmt::format("{} to {}{}{}", runs_[run].first_step, runs_[run].last_step,
                         last.empty() ? "" : " of " + last,
                         runs_[run].starts > 1 ? fmt::format(", started {} times", runs_[run].starts) : "");
    });
    row_of("last loss", [&](size_t run) { return last_value(run, "loss"); });
    row_of("best validation loss", [&](size_t run) { return best_value(run, "valid_loss", false); });
    row_of("best AUC", [&](size_t run) { return best_value(run, "valid_auc", true); });
    row_of("best log loss", [&](size_t run) { return best_value(run, "valid_log_loss", false); });
    row_of("median step", [&](size_t run) {
      const Curve& seconds = runs_[run].curve("step_seconds");
      return seconds.empty() ? "" : seconds_text(quantile(sorted_values(seconds), 0.5));
    });
    row_of("tokens a second", [&](size_t run) { return median_value(run, "tokens_per_second"); });
    row_of("samples a second", [&](size_t run) { return median_value(run, "samples_per_second"); });
    row_of("MFU", [&](size_t run) {
      const Curve& mfu = runs_[run].curve("mfu");
      return mfu.empty() ? "" : fmt::format("{:.1f} %", 100 * quantile(sorted_values(mfu), 0.5));
    });
    row_of("planned memory of a rank", [&](size_t run) {
      const auto bytes = start_number(runs_[run], "planned_bytes");
      return bytes && *bytes > 0 ? bytes_text(static_cast<size_t>(*bytes)) : "";
    });
    row_of("most resident memory", [&](size_t run) {
      const Curve& bytes = runs_[run].curve("resident_bytes");
      return bytes.empty() ? "" : bytes_text(static_cast<size_t>(std::max(0.0, sorted_values(bytes).back())));
    });
    row_of("skipped steps", [&](size_t run) {
      const auto skipped = skipped_steps(runs_[run]);
      return skipped.empty() ? "" : std::to_string(skipped.size());
    });
    row_of("checkpoints", [&](size_t run) {
      const std::vector<RunEvent>& all = runs_[run].events;
      return std::to_string(
          std::count_if(all.begin(), all.end(), [](const RunEvent& one) { return !is_problem(one); }));
    });
    row_of("events", [&](size_t run) {
      const std::vector<RunEvent>& all = runs_[run].events;
      return std::to_string(std::count_if(all.begin(), all.end(), is_problem));
    });
    print("</table>\n");
  }

  static std::vector<int64_t> skipped_steps(const RunLog& run) {
    std::vector<int64_t> steps;
    for (const CurvePoint& point : run.curve("skipped"))
      if (point.value != 0) steps.push_back(point.step);
    return steps;
  }

  // Draws these paths of all runs in one chart; the first path solid, others dashed. Returns whether there are any.
  bool chart(const std::string& title, const std::vector<std::string>& paths, bool marked = false) {
    std::vector<ChartLine> lines;
    std::vector<ChartMark> marks;
    for (size_t run = 0; run < runs_.size(); ++run) {
      for (size_t i = 0; i < paths.size(); ++i)
        if (const Curve& curve = runs_[run].curve(paths[i]); !curve.empty())
          lines.push_back({printable_message(runs_[run].path) + ": " + printable_message(paths[i]),
                           color(run), i > 0, &curve});
      if (!marked) continue;
      for (const RunEvent& event : runs_[run].events)
        marks.push_back({event.step, is_problem(event) ? kWarning : kSaved,
                         printable_message(event.kind + ": " + values_text(event))});
    }
    std::stable_partition(marks.begin(), marks.end(),
                          [](const ChartMark& mark) { return mark.color == kSaved; });
    for (const std::string& path : paths) drawn_.insert(path);
    const std::string svg = chart_svg(printable_message(title), lines, marks);
    text_ += svg;
    return !svg.empty();
  }

  void curves() {
    print("<h2>Curves</h2>\n<p>");
    for (size_t run = 0; run < runs_.size(); ++run) print("{} &nbsp; ", key(run));
    print(
        "</p>\n<p>Dashed curves are of evaluations. Vertical lines mark checkpoints (grey) and other events "
        "(red). Point at a line to read its name.</p>\n<div class=\"charts\">\n");
    chart("loss", {"loss", "valid_loss", "valid_log_loss", "test_loss", "train_loss"}, true);
    for (const char* path : {"valid_auc", "lr", "grad_norm", "tokens_per_second", "samples_per_second",
                             "step_seconds", "mfu", "loss_scale", "resident_bytes"})
      chart(path, {path});
    print("</div>\n");
    std::set<std::string> others;
    for (const RunLog& run : runs_)
      for (const auto& [path, curve] : run.curves)
        if (drawn_.count(path) == 0) others.insert(path);
    if (others.empty()) return;
    print("<details><summary>{} other numbers</summary><div class=\"charts\">\n", others.size());
    size_t count = 0;
    for (const std::string& path : others)
      if (count++ < kMostCharts) chart(path, {path});
    print("</div>");
    if (count > kMostCharts) print("<p>Only the first {} are drawn; the log has all.</p>", kMostCharts);
    print("</details>\n");
  }

  void step_times() {
    print("<h2>Step times, planned and measured</h2>\n");
    head_of_runs();
    constexpr std::array kShares{std::pair("fastest", 0.0), std::pair("median", 0.5),
                                 std::pair("90 % are faster than", 0.9),
                                 std::pair("99 % are faster than", 0.99), std::pair("slowest", 1.0)};
    std::vector<std::vector<double>> sorted;
    for (const RunLog& run : runs_) sorted.push_back(sorted_values(run.curve("step_seconds")));
    for (const auto& [name, share] : kShares)
      row_of(name, [&, at = share](size_t run) {
        return sorted[run].empty() ? "" : seconds_text(quantile(sorted[run], at));
      });
    row_of("planned", [&](size_t run) {
      return planned_[run].picture ? seconds_text(planned_[run].picture->step_seconds) : "";
    });
    row_of("median / planned", [&](size_t run) {
      if (!planned_[run].picture || sorted[run].empty() || planned_[run].picture->step_seconds <= 0)
        return std::string();
      return fmt::format("{:.2f}", quantile(sorted[run], 0.5) / planned_[run].picture->step_seconds);
    });
    row_of("not planned, because", [&](size_t run) { return planned_[run].reason; });
    print("</table>\n");
  }

  void plans() {
    std::vector<Timeline> timelines;
    for (size_t run = 0; run < runs_.size(); ++run) {
      if (!planned_[run].picture) continue;
      timelines.push_back(planned_[run].picture->timeline);
      PictureText& text = timelines.back().text;
      const Curve& seconds = runs_[run].curve("step_seconds");
      text.title = printable_message(runs_[run].path) + ": " + text.title;
      text.subtitle = "planned: " + text.subtitle;
      if (!seconds.empty())
        text.subtitle += ", measured (median) " + seconds_text(quantile(sorted_values(seconds), 0.5));
    }
    if (timelines.empty()) return;
    print(
        "<h2>The planned step</h2>\n<p>As <code>trifold plan</code> simulates it, for the rate of matrix products "
        "that a language model's run measured at its start.</p>\n<div class=\"plan\">{}</div>\n",
        timelines_svg(timelines));
  }

  static std::string values_text(const RunEvent& event) {
    if (event.values.is_object() && event.values.size() == 1) return text_of(event.values.front());
    std::string text;
    for (const auto& item : event.values.items())
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", item.key(), text_of(item.value()));
    return text;
  }

  template <class Wanted>
  void event_table(size_t run, Wanted&& wanted) {
    size_t count = 0;
    for (const RunEvent& event : runs_[run].events) {
      if (!wanted(event) || ++count > kMostEvents) continue;
      print("<tr><td>{}</td><td class=\"number\">{}</td><td>{}</td><td>{}</td></tr>\n", key(run), event.step,
            safe(event.kind), safe(values_text(event)));
    }
    if (count > kMostEvents)
      print("<tr><td>{}</td><td></td><td></td><td>{} more are in the log</td></tr>\n", key(run),
            count - kMostEvents);
  }

  void events() {
    print("<h2>Events</h2>\n<table><tr><th>run</th><th>step</th><th>event</th><th></th></tr>\n");
    bool any = false;
    for (size_t run = 0; run < runs_.size(); ++run) {
      for (const std::string& text : skip_texts(runs_[run])) {
        any = true;
        print("<tr><td>{}</td><td></td><td>skipped</td><td>{}</td></tr>\n", key(run), safe(text));
      }
      any = any || std::any_of(runs_[run].events.begin(), runs_[run].events.end(), is_problem);
      event_table(run, is_problem);
    }
    print("</table>\n{}", any ? "" : "<p>No warning, no skipped step.</p>\n");
  }

  // "the weights were not changed by steps 3 to 5, 9 and 40 others"
  static std::vector<std::string> skip_texts(const RunLog& run) {
    const std::vector<int64_t> steps = skipped_steps(run);
    if (steps.empty()) return {};
    std::vector<std::string> ranges;
    size_t named = 0;
    for (size_t i = 0; i < steps.size() && ranges.size() < 20;) {
      size_t end = i + 1;
      while (end < steps.size() && steps[end] == steps[end - 1] + 1) ++end;
      ranges.push_back(end - i == 1 ? std::to_string(steps[i])
                                    : fmt::format("{} to {}", steps[i], steps[end - 1]));
      named += end - i;
      i = end;
    }
    return {fmt::format("the weights were not changed by steps {}{}", fmt::join(ranges, ", "),
                        named < steps.size() ? fmt::format(" and {} others", steps.size() - named) : "")};
  }

  void checkpoints() {
    const auto is_saved = [](const RunEvent& event) { return !is_problem(event); };
    if (std::none_of(runs_.begin(), runs_.end(), [&](const RunLog& run) {
          return std::any_of(run.events.begin(), run.events.end(), is_saved);
        }))
      return;
    print("<h2>Checkpoints</h2>\n<table><tr><th>run</th><th>step</th><th></th><th>folder</th></tr>\n");
    for (size_t run = 0; run < runs_.size(); ++run) event_table(run, is_saved);
    print("</table>\n");
  }

  // The options of all runs; rows that differ are marked.
  void options() {
    std::set<std::string> names;
    const auto options_of = [](const RunLog& run) {
      const bool has =
          run.start.is_object() && run.start.contains("options") && run.start["options"].is_object();
      return has ? run.start["options"] : nlohmann::json::object();
    };
    for (const RunLog& run : runs_) {
      const nlohmann::json options = options_of(run);
      for (const auto& item : options.items()) names.insert(item.key());
    }
    if (names.empty()) return;
    print("<h2>Options</h2>\n<details{}><summary>{} options{}</summary>\n", runs_.size() > 1 ? " open" : "",
          names.size(), runs_.size() > 1 ? "; those that differ are marked" : "");
    head_of_runs();
    for (const std::string& name : names) {
      std::vector<std::string> cells;
      for (const RunLog& run : runs_) {
        const nlohmann::json options = options_of(run);
        cells.push_back(options.contains(name) ? text_of(options[name]) : "");
      }
      row(name, cells, true);
    }
    print("</table></details>\n");
  }

  const std::vector<RunLog>& runs_;
  std::vector<Planned> planned_;
  std::set<std::string> drawn_;  // paths that have a chart
  std::string text_;
};

}  // namespace

std::string report_page(const std::vector<RunLog>& runs) { return Page(runs).text(); }

}  // namespace trifold
