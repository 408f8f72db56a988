#include "rehearse/rank_failures.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

namespace trifold {

namespace {

// "rank 3", "ranks 0, 3 and 6"
std::string text_of_ranks(std::span<const int> ranks) {
  if (ranks.size() == 1) return fmt::format("rank {}", ranks.front());
  return fmt::format("ranks {} and {}", fmt::join(ranks.first(ranks.size() - 1), ", "), ranks.back());
}

}  // namespace

std::optional<int> RankFailures::add(const RehearsedRank& rank) {
  if (rank.failure.empty()) return std::nullopt;
  const auto same = std::find_if(ranks_.begin(), ranks_.end(),
                                 [&](const OfRanks& known) { return known.failure == rank.failure; });
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
  if (!failed.empty()) lines.push_back(text_of_ranks(failed) + ", as said above");
  lines.insert(lines.end(), of_run_.begin(), of_run_.end());
  return lines;
}

}  // namespace trifold
