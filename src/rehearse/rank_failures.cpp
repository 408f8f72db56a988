#include "rehearse/rank_failures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>

namespace trifold {

namespace {

// "rank 3", "ranks 0, 3 and 6"
std::string text_of_ranks(std::span<const int> ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  return fmt::format("ranks {} and {}", fmt::join(ranks.first(ranks.size() - 1), ", "), ranks.back());
}

bool is_amount(char letter) { return (letter >= '0' && letter <= '9') || letter == '.'; }

// A failure without amounts of memory ("12.00 GiB"), in which ranks that fail in the same way differ.
std::string kind_of(const std::string& failure) {
  constexpr std::string_view kUnits[] = {" B", " KiB", " MiB", " GiB", " TiB"};
  std::string kind;
  for (size_t at = 0; at < failure.size();) {
    size_t end = at;
    while (end < failure.size() && is_amount(failure[end])) ++end;
    const std::string_view rest = std::string_view(failure).substr(end);
    const auto unit = std::find_if(std::begin(kUnits), std::end(kUnits),
                                   [&](std::string_view each) { return rest.starts_with(each); });
    if (end > at && unit != std::end(kUnits)) {
      at = end + unit->size();
    } else {
      end = std::max(end, at + 1);
      kind += failure.substr(at, end - at);
      at = end;
    }
  }
  return kind;
}

}  // namespace

std::optional<int> RankFailures::add(const RehearsedRank& rank) {
  if (rank.failure.empty()) return std::nullopt;
  const auto same = std::find_if(ranks_.begin(), ranks_.end(), [&](const OfRanks& known) {
    return kind_of(known.failure) == kind_of(rank.failure);
  });
  if (same == ranks_.end()) {
    ranks_.push_back({rank.failure, {rank.rank}});
    return std::nullopt;
  }
  same->ranks.push_back(rank.rank);
  return same->ranks.front();
}

std::vector<std::string> RankFailures::all() const {
  std::vector<std::string> lines;
  for (const OfRanks& each : ranks_)
    lines.push_back(fmt::format("{}: {}", text_of_ranks(each.ranks), each.failure));
  lines.insert(lines.end(), of_run_.begin(), of_run_.end());
  return lines;
}

std::vector<std::string> RankFailures::after_reports() const {
  std::vector<int> failed;
  for (const OfRanks& each : ranks_) failed.insert(failed.end(), each.ranks.begin(), each.ranks.end());
  std::sort(failed.begin(), failed.end());
  std::vector<std::string> lines;
  if (!failed.empty()) lines.push_back(text_of_ranks(failed) + ", see above");
  lines.insert(lines.end(), of_run_.begin(), of_run_.end());
  return lines;
}

}  // namespace trifold
