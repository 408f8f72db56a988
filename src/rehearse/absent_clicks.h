// AbsentClicks: what the absent ranks of a recommender's mesh would ask of a rank that runs alone. Their samples have
// bags as long as the bags of the first share of the first global batch; their ids are drawn from a Zipf law over the rows
// of each table, and packed as real ranks pack them (embedding/id_exchange.h), so a shard gets the ids of its rows. A few
// batches are made when the object is constructed, so that no step waits for them, and are sent in turn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "clicks/click_source.h"
#include "comm/absent_comm.h"
#include "embedding/id_exchange.h"
#include "embedding/table_groups.h"
#include "recommend/recommender.h"

namespace trifold {

struct AbsentClicksOptions {
  double zipf = 1.05;           // exponent of the law; 0: all rows are equally likely
  double bytes_per_second = 0;  // a rank's link, for the planned time of calls; 0: they have none
  double latency = 0;           // seconds of a message
};

class AbsentClicks final : public AbsentPeers {
 public:
  // The peers of rank `rank` of `ranks`. The bags of the first global batch of `feed` say how long bags are.
  AbsentClicks(const RecommenderSetup& setup, int rank, int ranks, const ClickFeed& feed,
               const AbsentClicksOptions& options);
  // Estimates bytes() of such an object from one message per group of tables.
  static size_t planned_bytes(const RecommenderSetup& setup, int rank, int ranks, const ClickFeed& feed,
                              const AbsentClicksOptions& options);
  size_t bytes() const;

  double seconds(const Work& call) const override;
  bool rows(unsigned group, Tensor out, std::span<const int64_t> out_rows) const override;

 private:
  static constexpr int64_t kBatches = 3;

  // The messages of all peers for one batch, in rank order; this rank's own is empty.
  struct Messages {
    std::vector<int64_t> counts;  // words from each rank
    std::vector<int32_t> words;
  };
  struct Group {
    unsigned id = 0;  // its communicator's
    std::vector<Messages> batches;
    mutable int64_t sent = 0;  // batches so far; called by one thread at a time
  };

  AbsentClicksOptions options_;
  std::vector<Group> groups_;
};

}  // namespace trifold
