#include "rehearse/absent_clicks.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "clicks/synthetic/zipf_law.h"
#include "core/random.h"

namespace trifold {

namespace {

// Only the lengths of bags matter, not their rows.
class NoKeys final : public KeyRows {
 public:
  int32_t row_of(int, uint64_t) const override { return 0; }
};

// Makes the batches of peers for the tables of a group of which a rank holds a part.
class PeerBatches {
 public:
  // `like` is a batch of the group's tables, and outlives this object.
  PeerBatches(const RecommenderSetup& setup, const TableGroup& group, int rank, int ranks,
              const ClickBatch& like, double zipf)
      : setup_(setup), group_(group), rank_(rank), options_(setup.lookups(ranks, group.bags)), like_(like) {
    const size_t tables = group.tables.size();
    lengths_.resize(tables);
    ids_.resize(tables);
    weights_.resize(tables);
    for (size_t t = 0; t < tables; ++t) {
      const EmbeddingTable& table = group.placement.tables()[t];
      laws_.emplace_back(table.rows, zipf);
      keys_.push_back(philox_key(setup.seed, "ids of absent ranks in " + table.name));
    }
  }

  // Appends the message of rank `peer` in batch `batch`, and returns the number of its words.
  int64_t append(int peer, int64_t batch, std::vector<int32_t>& words) {
    const int ranks = group_.placement.ranks();
    const ClickBatch clicks = draw(peer, static_cast<uint64_t>(batch * ranks + peer));
    message_.resize(
        static_cast<size_t>(id_message_room(group_.placement, options_, group_.placement.shards_of(rank_))));
    const int64_t count = pack_ids(group_.placement, options_, clicks, rank_, message_.data());
    words.insert(words.end(), message_.begin(), message_.begin() + count);
    return count;
  }

 private:
  bool is_held(size_t table) const {
    const std::span<const Shard> shards = group_.placement.shards_of(rank_);
    return std::any_of(shards.begin(), shards.end(),
                       [&](const Shard& shard) { return static_cast<size_t>(shard.table) == table; });
  }

  // The batch of a peer, numbered `number`, with bags of the tables that the rank holds a part of.
  ClickBatch draw(int peer, uint64_t number) {
    const int64_t share = options_.samples / group_.bags;
    const int64_t real = std::clamp<int64_t>(setup_.global_batch - peer * share, 0, share);
    ClickBatch clicks;
    clicks.samples = options_.samples;
    for (size_t t = 0; t < laws_.size(); ++t) {
      lengths_[t].assign(static_cast<size_t>(options_.samples), 0);
      ids_[t].clear();
      weights_[t].clear();
      if (is_held(t)) draw_bags(t, number, real * group_.bags);
      const auto count = static_cast<int64_t>(ids_[t].size());
      clicks.lengths.push_back({lengths_[t].data(), DType::I32, {options_.samples}});
      clicks.ids.push_back({ids_[t].data(), DType::I32, {count}});
      if (options_.weighted) clicks.id_weights.push_back({weights_[t].data(), DType::F32, {count}});
    }
    return clicks;
  }

  // Draws `bags` bags of a table. They are as long as the bags of `like_`, from another sample on.
  void draw_bags(size_t t, uint64_t number, int64_t bags) {
    constexpr double kUnit = 1.0 / 4294967296.0;
    const int64_t known = std::max<int64_t>(1, like_.real) * group_.bags;
    const int64_t first =
        static_cast<int64_t>(number % static_cast<uint64_t>(known / group_.bags)) * group_.bags;
    const int32_t* lengths = like_.lengths[t].as<int32_t>();
    const auto most = static_cast<uint64_t>(options_.samples * group_.placement.tables()[t].max_ids);
    uint64_t word = number * most;
    for (int64_t i = 0; i < bags; ++i) {
      const int32_t length = lengths[(first + i) % known];
      lengths_[t][static_cast<size_t>(i)] = length;
      for (int32_t k = 0; k < length; ++k) {
        const double uniform = (philox_word(keys_[t], word++) + 0.5) * kUnit;
        ids_[t].push_back(static_cast<int32_t>(laws_[t].row_of(laws_[t].rank_of(uniform))));
        if (options_.weighted) weights_[t].push_back(static_cast<float>(0.5 + uniform));
      }
    }
  }

  const RecommenderSetup& setup_;
  const TableGroup& group_;
  int rank_;
  LookupOptions options_;
  const ClickBatch& like_;
  std::vector<ZipfLaw> laws_;  // a law for each table
  std::vector<PhiloxKey> keys_;
  std::vector<int32_t> message_;
  std::vector<std::vector<int32_t>> lengths_, ids_;
  std::vector<std::vector<float>> weights_;
};

// Calls each(g, peers) for each group of tables with the batches of the peers of rank `rank`.
template <class Each>
void for_groups(const RecommenderSetup& setup, int rank, int ranks, const ClickFeed& feed,
                const AbsentClicksOptions& options, Each each) {
  const NoKeys no_keys;
  ClickBatchBuffer like(setup.schema, setup.samples(ranks));
  like.use(no_keys);
  feed.read(0, 0, setup.samples(ranks), like);
  const std::vector<TableGroup> groups = group_tables(placement_of(setup, ranks));
  for (size_t g = 0; g < groups.size(); ++g) {
    BagBatch bags(setup.uses(), groups[g], setup.schema, setup.samples(ranks));
    const ClickBatch arranged = setup.model.places.empty() ? like.batch() : bags.arrange(like.batch());
    PeerBatches peers(setup, groups[g], rank, ranks, arranged, options.zipf);
    each(g, peers);
  }
}

}  // namespace

AbsentClicks::AbsentClicks(const RecommenderSetup& setup, int rank, int ranks, const ClickFeed& feed,
                           const AbsentClicksOptions& options)
    : options_(options) {
  for_groups(setup, rank, ranks, feed, options, [&](size_t g, PeerBatches& peers) {
    Group& group = groups_.emplace_back();
    group.id = ids_group(g);
    for (int64_t batch = 0; batch < kBatches; ++batch) {
      Messages& messages = group.batches.emplace_back();
      for (int peer = 0; peer < ranks; ++peer) {
        messages.counts.push_back(peer == rank ? 0 : peers.append(peer, batch, messages.words));
        // All messages are about as long; a vector that doubles its memory would need three times as much.
        if (messages.words.size() == static_cast<size_t>(messages.counts.back()))
          messages.words.reserve(messages.words.size() * static_cast<size_t>(ranks) * 11 / 10);
      }
    }
  });
}

// One message stands for all: the bags of all peers are as long, and only the ids of the rank's rows differ in number.
size_t AbsentClicks::planned_bytes(const RecommenderSetup& setup, int rank, int ranks, const ClickFeed& feed,
                                   const AbsentClicksOptions& options) {
  if (ranks == 1) return 0;
  size_t words = 0;
  for_groups(setup, rank, ranks, feed, options, [&](size_t, PeerBatches& peers) {
    std::vector<int32_t> message;
    words += static_cast<size_t>(peers.append(rank == 0 ? 1 : 0, 0, message));
  });
  return kBatches * static_cast<size_t>(ranks - 1) * words * sizeof(int32_t);
}

size_t AbsentClicks::bytes() const {
  size_t bytes = 0;
  for (const Group& group : groups_)
    for (const Messages& messages : group.batches) bytes += messages.words.size() * sizeof(int32_t);
  return bytes;
}

double AbsentClicks::seconds(const Work& call) const {
  if (options_.bytes_per_second == 0) return 0;
  return call.sent / options_.bytes_per_second + call.hops * options_.latency;
}

// The sizes of the messages are asked for first, then the messages themselves.
bool AbsentClicks::rows(unsigned group, Tensor out, std::span<const int64_t> out_rows) const {
  const auto found =
      std::find_if(groups_.begin(), groups_.end(), [&](const Group& each) { return each.id == group; });
  if (found == groups_.end()) return false;
  const Messages& messages = found->batches[static_cast<size_t>(found->sent % kBatches)];
  if (out.dtype == DType::I64) {
    std::copy(messages.counts.begin(), messages.counts.end(), out.as<int64_t>());
    return true;
  }
  const int32_t* from = messages.words.data();
  int32_t* to = out.as<int32_t>();
  for (size_t rank = 0; rank < out_rows.size(); ++rank) {
    std::copy_n(from, messages.counts[rank], to);
    from += messages.counts[rank];
    to += out_rows[rank];
  }
  ++found->sent;
  return true;
}

}  // namespace trifold
