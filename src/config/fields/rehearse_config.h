// The configuration of `trifold rehearse`: one rank of a run is executed alone on this host, without its peers. As in
// config.h, field names are the option names with underscores.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields/recommend_config.h"

namespace trifold {

// What a rehearsed rank waits for where it would wait for its peers.
enum class PeerWait {
  None,     // nothing: what peers would send arrives at once
  Planned,  // as long as the plan assumes that the transfer takes
};
template <>
struct Names<PeerWait> {
  static constexpr Named<PeerWait> kAll[] = {{PeerWait::None, "none"}, {PeerWait::Planned, "planned"}};
};

// --only-ranks: ranks of the mesh, separated by commas, in the order in which they are rehearsed.
struct RankList {
  static constexpr std::string_view kBounds = "ranks at least 0";

  std::vector<int> ranks;  // different, not empty

  bool operator==(const RankList&) const = default;
  static RankList parse(std::string_view text);
  std::string text() const;
};

// What is rehearsed, for every kind of run.
struct RehearseConfig {
  std::optional<RankList> only_ranks;  // absent: the first, the fullest and the last pipeline stage
  PeerWait wait = PeerWait::None;
  int64_t steps = 3;                     // steps that are measured, after one that is not
  std::optional<int64_t> micro_batches;  // micro-batches of a step; the run's
  double zipf = 1.05;                    // recommenders: exponent of the law of the ids that peers would send
  bool no_data = false;                  // set by `resolve`: the run names no data, so its tokens are random
};

// `trifold rehearse` of a language model that is trained from its options. `plan.run` is the run; the costs in `plan`
// are compared with the measured ones, and its moe_load_imbalance decides how many rows of
// experts arrive. If options give no length, a run is made that is long enough.
struct RehearsePretrainConfig {
  PlanConfig plan;
  RehearseConfig rehearse;
};

// `trifold rehearse --task`: of a model that is finetuned. `plan.run` is set when the files are read.
struct RehearseFinetuneConfig {
  FinetuneConfig run;
  PlanConfig plan;
  RehearseConfig rehearse;
};

// `trifold rehearse` of a recommender.
struct RehearseRecommenderConfig {
  PlanRecommenderConfig plan;
  RehearseConfig rehearse;
};

}  // namespace trifold
