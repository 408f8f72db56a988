#include "embedding/id_exchange.h"

#include <algorithm>
#include <cstring>
#include <numeric>

namespace trifold {

namespace {

constexpr size_t kInt = sizeof(int32_t);
constexpr int64_t kBagsOfPart = 32768;  // minimum per worker: waking a worker for fewer takes longer

const EmbeddingTable& table_of(const Placement& placement, const Shard& shard) {
  return placement.tables()[static_cast<size_t>(shard.table)];
}

void add_up(int32_t* offsets, const int32_t* lengths, int64_t bags) {
  for (int64_t i = 0; i < bags; ++i) offsets[i + 1] = offsets[i] + lengths[i];
}

// Writes the bags of a shard; returns the number of 32-bit words written to `ids`.
int64_t pack_shard(const Placement& placement, const LookupOptions& options, const ClickBatch& batch,
                   const Shard& shard, int32_t* lengths, int32_t* ids) {
  const auto t = static_cast<size_t>(shard.table);
  const auto samples = static_cast<size_t>(options.samples);
  const int32_t* all_lengths = batch.lengths[t].as<int32_t>();
  const int32_t* all_ids = batch.ids[t].as<int32_t>();
  const int64_t all = batch.ids[t].elements();
  const int64_t first = shard.rect.offset[0];
  const int64_t rows = shard.rect.extent[0];
  std::vector<int32_t> weights;
  const auto* all_weights =
      options.weighted ? reinterpret_cast<const int32_t*>(batch.id_weights[t].as<float>()) : nullptr;
  if (rows == placement.tables()[t].rows) {
    std::memcpy(lengths, all_lengths, samples * kInt);
    std::memcpy(ids, all_ids, static_cast<size_t>(all) * kInt);
    if (all_weights != nullptr) std::memcpy(ids + all, all_weights, static_cast<size_t>(all) * kInt);
    return options.weighted ? 2 * all : all;
  }
  int64_t count = 0;
  const int32_t* id = all_ids;
  for (size_t i = 0; i < samples; ++i) {
    const int64_t before = count;
    for (int32_t k = 0; k < all_lengths[i]; ++k, ++id) {
      if (*id < first || *id >= first + rows) continue;
      ids[count++] = static_cast<int32_t>(*id - first);
      if (all_weights != nullptr) weights.push_back(all_weights[id - all_ids]);
    }
    lengths[i] = static_cast<int32_t>(count - before);
  }
  if (all_weights != nullptr) std::copy(weights.begin(), weights.end(), ids + count);
  return options.weighted ? 2 * count : count;
}

}  // namespace

int64_t id_message_room(const Placement& placement, const LookupOptions& options,
                        std::span<const Shard> shards) {
  const int64_t parts = options.weighted ? 2 : 1;  // 32-bit words per id
  int64_t words = 0;
  for (const Shard& shard : shards)
    words += options.samples * (1 + parts * table_of(placement, shard).max_ids);
  return words;
}

int64_t pack_ids(const Placement& placement, const LookupOptions& options, const ClickBatch& batch,
                 int receiver, int32_t* to) {
  const std::span<const Shard> shards = placement.shards_of(receiver);
  int32_t* lengths = to;
  int32_t* at = to + static_cast<int64_t>(shards.size()) * options.samples;
  for (const Shard& shard : shards) {
    at += pack_shard(placement, options, batch, shard, lengths, at);
    lengths += options.samples;
  }
  return at - to;
}

IdExchange::IdExchange(const Placement& placement, Communicator& comm, const OpTable& ops,
                       const LookupOptions& options)
    : placement_(placement),
      comm_(comm),
      ops_(ops),
      options_(options),
      global_(options.samples * placement.ranks()),
      send_counts_(static_cast<size_t>(placement.ranks())),
      receive_counts_(send_counts_.size()),
      ones_(send_counts_.size(), 1) {
  check(comm.size() == placement.ranks(), "tables are placed on {} ranks, but there are {}",
        placement.ranks(), comm.size());
  if (placement.ranks() == 1) return;
  const auto room = [&](std::span<const Shard> shards, int64_t messages) {
    return Buffer(static_cast<size_t>(messages * id_message_room(placement, options, shards)) * kInt);
  };
  send_ = room(placement.shards(), 1);
  receive_ = room(placement.shards_of(comm.rank()), placement.ranks());
}

std::unique_ptr<LookupBatch> IdExchange::make_batch() const {
  return std::make_unique<LookupBatch>(ops_, placement_, comm_.rank(), options_);
}

void IdExchange::reserve_sorting(LookupBatch& batch, Stream& stream) const {
  if (ops_.device == nullptr) return;
  batch.fill_up();
  batch.finish(true, stream);
  stream.synchronize();
}

// All ids that any placement or device looks up, in forward and in updates, pass through here, so ids are
// checked here against the rows of the tables, whatever checks the source of the batch has made.
void IdExchange::check_ids(const ClickBatch& batch, ThreadPool& pool) const {
  check(batch.ids.size() == placement_.tables().size(), "a batch with ids of {} tables, {} are placed",
        batch.ids.size(), placement_.tables().size());
  for_each_list(pool, batch.ids.size(), [&](size_t t) {
    const auto* const ids = batch.ids[t].as<int32_t>();
    uint32_t most = 0;  // as unsigned, so a negative id is large
    for (int64_t i = 0; i < batch.ids[t].elements(); ++i)
      most = std::max(most, static_cast<uint32_t>(ids[i]));
    if (batch.ids[t].elements() > 0 && most >= static_cast<uint64_t>(placement_.tables()[t].rows))
        [[unlikely]]
      refuse_id(batch, t);
  });
}

// Parts are in the order of the lists, and the pool rethrows the error of the first, so the message is that of one
// thread.
void IdExchange::for_each_list(ThreadPool& pool, size_t lists, FunctionRef<void(size_t list)> body) const {
  const int64_t grain = std::max<int64_t>(1, kBagsOfPart / std::max<int64_t>(1, options_.samples));
  pool.parallel_for(static_cast<int64_t>(lists), grain, [&](int64_t begin, int64_t end) {
    for (int64_t list = begin; list < end; ++list) body(static_cast<size_t>(list));
  });
}

void IdExchange::refuse_id(const ClickBatch& batch, size_t t) const {
  const EmbeddingTable& table = placement_.tables()[t];
  const auto* id = batch.ids[t].as<int32_t>();
  for (int64_t i = 0; i < batch.samples; ++i)
    for (int32_t k = batch.lengths[t].as<int32_t>()[i]; k > 0; --k, ++id)
      if (*id < 0 || *id >= table.rows)
        bad_input("table {}: id {} of sample {} of the epoch is outside the table, which has {} rows",
                  table.name, *id, batch.first_sample + i / options_.bags, table.rows);
  fail("table {}: the batch has more ids than the lengths of its bags say", table.name);
}

void IdExchange::pack(const ClickBatch& batch) {
  auto* at = reinterpret_cast<int32_t*>(send_.data());
  for (int rank = 0; rank < placement_.ranks(); ++rank) {
    const int64_t words = pack_ids(placement_, options_, batch, rank, at);
    send_counts_[static_cast<size_t>(rank)] = words;
    at += words;
  }
}

// Sizes are exchanged first: a rank does not know how many ids the other ranks' samples have.
void IdExchange::exchange(Stream& host) {
  const auto counts = [](std::vector<int64_t>& c) -> Tensor {
    return {c.data(), DType::I64, {static_cast<int64_t>(c.size())}};
  };
  comm_.all_to_all(counts(receive_counts_), counts(send_counts_), ones_, ones_, host);
  host.synchronize();
  comm_.all_to_all(receive_.tensor(DType::I32, {sum(receive_counts_)}),
                   send_.tensor(DType::I32, {sum(send_counts_)}), receive_counts_, send_counts_, host);
  host.synchronize();
}

void IdExchange::unpack(LookupBatch& out) const {
  const auto shards = static_cast<size_t>(out.shards);
  const auto* const messages = reinterpret_cast<const int32_t*>(receive_.data());
  std::vector<int32_t*> offsets;
  for (size_t s = 0; s < shards; ++s) offsets.push_back(out.take_offsets(s));
  const int32_t* message = messages;
  for (int source = 0; source < placement_.ranks(); ++source) {
    for (size_t s = 0; s < shards; ++s)
      add_up(offsets[s] + source * options_.samples, message + static_cast<int64_t>(s) * options_.samples,
             options_.samples);
    message += receive_counts_[static_cast<size_t>(source)];
  }
  std::vector<LookupBatch::Ids> written;
  for (size_t s = 0; s < shards; ++s) written.push_back(out.take_ids(s, offsets[s][global_]));
  message = messages;
  for (int source = 0; source < placement_.ranks(); ++source) {
    const int32_t* ids = message + static_cast<int64_t>(shards) * options_.samples;
    for (size_t s = 0; s < shards; ++s) {
      const int32_t* of_source = offsets[s] + source * options_.samples;
      const int64_t n = of_source[options_.samples] - of_source[0];
      const auto bytes = static_cast<size_t>(n) * kInt;
      std::memcpy(written[s].ids + of_source[0], ids, bytes);
      if (options_.weighted) std::memcpy(written[s].weights + of_source[0], ids + n, bytes);
      ids += options_.weighted ? 2 * n : n;
    }
    message += receive_counts_[static_cast<size_t>(source)];
    check(ids == message, "the ids from rank {} are {} words more than their lengths say", source,
          message - ids);
  }
}

// Takes the bags of this rank's samples in whole tables, listed in `tables`; their lists begin at `list`.
void IdExchange::take_own(const ClickBatch& batch, std::span<const size_t> tables, LookupBatch& out,
                          size_t list, ThreadPool& pool) const {
  struct Destination {
    int32_t* offsets;
    LookupBatch::Ids ids;
  };
  std::vector<Destination> destinations;
  for (size_t i = 0; i < tables.size(); ++i) {
    int32_t* const offsets = out.take_offsets(list + i);
    destinations.push_back({offsets, out.take_ids(list + i, batch.ids[tables[i]].elements())});
  }
  for_each_list(pool, tables.size(), [&](size_t i) {
    const size_t table = tables[i];
    const Tensor& ids = batch.ids[table];
    add_up(destinations[i].offsets, batch.lengths[table].as<int32_t>(), options_.samples);
    std::memcpy(destinations[i].ids.ids, ids.data, ids.bytes());
    if (options_.weighted)
      std::memcpy(destinations[i].ids.weights, batch.id_weights[table].data, ids.bytes());
  });
}

void IdExchange::take_mean_factors(const ClickBatch& batch, LookupBatch& out) const {
  for (size_t t = 0; t < out.mean_factors.size(); ++t)
    dispatch_wide_float(options_.dtype, [&](auto zero) {
      using T = decltype(zero);
      const Tensor written = out.written.take(options_.dtype, {options_.samples});
      out.mean_factors[t] = out.written.operand(written);
      T* factors = written.as<T>();
      for (int64_t i = 0; i < options_.samples; ++i) {
        const int32_t length = batch.lengths[t].as<int32_t>()[i];
        factors[i] = length == 0 ? T(0) : T(1) / static_cast<T>(length);
      }
    });
}

void IdExchange::distribute(const ClickBatch& batch, LookupBatch& out, Stream& stream) {
  check(batch.samples == options_.samples, "a batch of {} samples where {} are distributed", batch.samples,
        options_.samples);
  check_ids(batch, stream.pool());
  out.written.restart();
  std::vector<size_t> whole;
  if (placement_.ranks() == 1) {
    for (const Shard& shard : placement_.shards()) whole.push_back(static_cast<size_t>(shard.table));
    take_own(batch, whole, out, 0, stream.pool());
  } else {
    Stream host = stream.host();
    pack(batch);
    exchange(host);
    unpack(out);
  }
  whole.clear();
  for (size_t t = 0; t < placement_.tables().size(); ++t)
    if (placement_.replicated(static_cast<int>(t))) whole.push_back(t);
  take_own(batch, whole, out, static_cast<size_t>(out.shards), stream.pool());
  take_mean_factors(batch, out);
}

}  // namespace trifold
