// What failed in a rehearsal. Ranks often fail in the same way, as when none fits the host's memory: each kind of failure is
// said once, with its ranks and the amounts of memory of the first.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rehearse/rehearsed_rank.h"

namespace trifold {

class RankFailures {
 public:
  // Notes the failure of a rank, if it has one. Returns the first rank with the same failure, if this is another.
  std::optional<int> add(const RehearsedRank& rank);
  // Notes a failure of the run that is not of a rehearsed rank.
  void add(std::string failure) { of_run_.push_back(std::move(failure)); }

  bool empty() const { return ranks_.empty() && of_run_.empty(); }
  // Every failure: "ranks 0 and 6: it needs ...".
  std::vector<std::string> all() const;
  // For readers who have seen the reports of the ranks: "ranks 0 and 6, see above".
  std::vector<std::string> after_reports() const;

 private:
  struct OfRanks {
    std::string failure;
    std::vector<int> ranks;
  };
  std::vector<OfRanks> ranks_;
  std::vector<std::string> of_run_;
};

}  // namespace trifold
