#include "clicks/cells/malformed.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "files/files_below.h"

namespace trifold {

void TextReport::add(const std::string& file, int64_t line_number, const LineProblem& problem) {
  ++malformed;
  ++kinds[problem.kind];
  if (std::ssize(shown) < kShown) shown.push_back(fmt::format("{}:{}: {}", file, line_number, problem.text));
}

void TextReport::append(const TextReport& other) {
  lines += other.lines;
  malformed += other.malformed;
  unlabelled += other.unlabelled;
  left_out.insert(left_out.end(), other.left_out.begin(), other.left_out.end());
  for (const auto& [kind, count] : other.kinds) kinds[kind] += count;
  for (const std::string& line : other.shown)
    if (std::ssize(shown) < kShown) shown.push_back(line);
}

std::string TextReport::summary() const {
  constexpr size_t kMostKinds = 5;
  if (malformed == 0) return "";
  std::vector<std::pair<int64_t, std::string>> sorted;
  for (const auto& [kind, count] : kinds) sorted.emplace_back(count, kind);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::string counts;
  int64_t others = malformed;
  for (size_t k = 0; k < std::min(sorted.size(), kMostKinds); ++k) {
    counts += fmt::format("{}{}: {}", k == 0 ? "" : ", ", sorted[k].second, sorted[k].first);
    others -= sorted[k].first;
  }
  if (others > 0) counts += fmt::format(", other problems: {}", others);
  return fmt::format("{} of {} lines {} malformed and left out ({})", malformed, lines,
                     malformed == 1 ? "is" : "are", counts);
}

std::string TextReport::line() const {
  return malformed == 0 ? "" : fmt::format("{}; the first: {}", summary(), shown.at(0));
}

std::string TextReport::text() const {
  if (malformed == 0) return "";
  std::string result = summary() + ":";
  for (const std::string& line : shown) result += "\n  " + line;
  if (malformed > std::ssize(shown)) result += fmt::format("\n  and {} more", malformed - std::ssize(shown));
  return result;
}

std::string TextReport::files_text() const {
  return files_left_out.empty() ? "" : "not read: " + list_of_names(files_left_out);
}

std::string TextReport::unlabelled_text(Unlabelled treatment) const {
  if (unlabelled == 0 || treatment == Unlabelled::Keep) return "";
  const bool one = unlabelled == 1;
  const char* const what = treatment == Unlabelled::Negative
                               ? (one ? "counts as negative" : "count as negative")
                               : (one ? "is left out" : "are left out");
  return fmt::format("{} of {} rows {} no label and {}", unlabelled, lines, one ? "has" : "have", what);
}

void check_malformed(const TextReport& report, double most) {
  if (static_cast<double>(report.malformed) <= most * static_cast<double>(report.lines)) return;
  bad_input("more than {} % of the lines are malformed (--max-malformed {}); {}", 100 * most, most,
            report.text());
}

}  // namespace trifold
