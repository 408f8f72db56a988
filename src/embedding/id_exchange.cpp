#include "embedding/id_exchange.h"

#include <cstring>
#include <numeric>

namespace trifold {

namespace {

constexpr size_t kInt = sizeof(int32_t);

const EmbeddingTable& table_of(const Placement& placement, const Shard& shard) {
  return placement.tables()[static_cast<size_t>(shard.table)];
}

// The ids of one table's bags where the host writes them.
struct Written {
  int32_t* ids = nullptr;
  float* weights = nullptr;
};

// Room for the offsets of `bags` bags of an entry, the first of them 0.
int32_t* take_offsets(LookupBatch& batch, size_t entry, int64_t bags) {
  const Tensor offsets = batch.written.take(DType::I32, {bags + 1});
  batch.lookups[entry].offsets = batch.written.there(offsets);
  offsets.as<int32_t>()[0] = 0;
  return offsets.as<int32_t>();
}

// Room for `n` lookups of an entry.
Written take_lookups(LookupBatch& batch, size_t entry, int64_t n, bool weighted) {
  BagLookup& lookup = batch.lookups[entry];
  LookupOrder& order = batch.orders[entry];
  const Shape all{n};
  const Tensor ids = batch.written.take(DType::I32, all);
  lookup.ids = batch.written.there(ids);
  order.row.shape = order.bag.shape = all;
  order.begin.shape = {n + 1};
  order.scratch.shape = {2 * n};
  if (!weighted) return {ids.as<int32_t>(), nullptr};
  const Tensor weights = batch.written.take(DType::F32, all);
  lookup.weights = batch.written.there(weights);
  order.weight.shape = all;
  return {ids.as<int32_t>(), weights.as<float>()};
}

void add_up(int32_t* offsets, const int32_t* lengths, int64_t bags) {
  for (int64_t i = 0; i < bags; ++i) offsets[i + 1] = offsets[i] + lengths[i];
}

}  // namespace

IdExchange::IdExchange(const Placement& placement, Communicator& comm, const OpTable& ops, const How& how)
    : placement_(placement),
      comm_(comm),
      ops_(ops),
      how_(how),
      global_(how.samples * placement.ranks()),
      send_counts_(static_cast<size_t>(placement.ranks())),
      receive_counts_(send_counts_.size()),
      ones_(send_counts_.size(), 1) {
  check(comm.size() == placement.ranks(), "tables placed on {} ranks, {} are there", placement.ranks(),
        comm.size());
  const int64_t parts = how.weighted ? 2 : 1;  // numbers of an id
  const auto most = [&](std::span<const Shard> shards, int64_t samples) {
    int64_t count = 0;
    for (const Shard& shard : shards) count += samples * (1 + parts * table_of(placement, shard).max_ids);
    return static_cast<size_t>(count) * kInt;
  };
  send_ = Buffer(most(placement.shards(), how.samples));
  receive_ = Buffer(most(placement.shards_of(comm.rank()), global_));
}

std::unique_ptr<LookupBatch> IdExchange::make_batch() const {
  struct Entry {
    int64_t rows, bags, column, most;  // most: ids
  };
  std::vector<Entry> entries;
  const size_t tables = placement_.tables().size();
  size_t written = how_.mean ? tables * CopyIn::room(how_.dtype, how_.samples) : 0;
  const auto add = [&](const EmbeddingTable& table, int64_t rows, int64_t bags, int64_t column) {
    const int64_t most = bags * table.max_ids;
    check(most < int64_t{1} << 31, "table {}: {} ids in a global batch are too many", table.name, most);
    entries.push_back({rows, bags, column, most});
    written += CopyIn::room(DType::I32, bags + 1) + (how_.weighted ? 2 : 1) * CopyIn::room(DType::I32, most);
  };
  const bool alone = placement_.ranks() == 1;
  for (const Shard& shard : placement_.shards_of(comm_.rank())) {
    const EmbeddingTable& table = table_of(placement_, shard);
    // One rank looks up straight into the features, behind the bottom MLP's vector.
    add(table, shard.rect.extent[0], global_, shard.column + (alone ? table.width : 0));
  }
  const auto shards = static_cast<int64_t>(entries.size());
  for (size_t t = 0; t < tables; ++t) {
    const EmbeddingTable& table = placement_.tables()[t];
    if (placement_.replicated(static_cast<int>(t)))
      add(table, table.rows, how_.samples, static_cast<int64_t>(t + 1) * table.width);
  }

  auto batch = std::make_unique<LookupBatch>(ops_, written);
  batch->shards = shards;
  batch->mean_factors.resize(how_.mean ? tables : 0);
  const auto take = [&](DType dtype, int64_t count) {
    batch->memory.emplace_back(static_cast<size_t>(count) * size_of(dtype), ops_.device);
    return batch->memory.back().tensor(dtype, {count});
  };
  for (const Entry& entry : entries) {
    BagLookup lookup;
    lookup.column = entry.column;
    batch->lookups.push_back(lookup);
    LookupOrder order;
    order.rows = entry.rows;
    order.row = take(DType::I32, entry.most);
    order.begin = take(DType::I32, entry.most + 1);
    order.bag = take(DType::I32, entry.most);
    if (how_.weighted) order.weight = take(DType::F32, entry.most);
    order.count = take(DType::I64, 1);
    order.scratch = take(DType::I64, 2 * entry.most);
    batch->orders.push_back(order);
  }
  return batch;
}

// Returns the number of 32-bit words written behind `ids`.
int64_t IdExchange::pack_shard(const ClickBatch& batch, const Shard& shard, int32_t* lengths,
                               int32_t* ids) const {
  const auto t = static_cast<size_t>(shard.table);
  const auto samples = static_cast<size_t>(how_.samples);
  const int32_t* all_lengths = batch.lengths[t].as<int32_t>();
  const int32_t* all_ids = batch.ids[t].as<int32_t>();
  const int64_t all = batch.ids[t].elements();
  const int64_t first = shard.rect.offset[0];
  const int64_t rows = shard.rect.extent[0];
  std::vector<int32_t> weights;
  const auto* all_weights =
      how_.weighted ? reinterpret_cast<const int32_t*>(batch.id_weights[t].as<float>()) : nullptr;
  if (rows == placement_.tables()[t].rows) {
    std::memcpy(lengths, all_lengths, samples * kInt);
    std::memcpy(ids, all_ids, static_cast<size_t>(all) * kInt);
    if (all_weights != nullptr) std::memcpy(ids + all, all_weights, static_cast<size_t>(all) * kInt);
    return how_.weighted ? 2 * all : all;
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
  return how_.weighted ? 2 * count : count;
}

void IdExchange::pack(const ClickBatch& batch) {
  auto* at = reinterpret_cast<int32_t*>(send_.data());
  for (int rank = 0; rank < placement_.ranks(); ++rank) {
    const std::span<const Shard> shards = placement_.shards_of(rank);
    int32_t* const begin = at;
    int32_t* lengths = at;
    at += static_cast<int64_t>(shards.size()) * how_.samples;
    for (const Shard& shard : shards) {
      at += pack_shard(batch, shard, lengths, at);
      lengths += how_.samples;
    }
    send_counts_[static_cast<size_t>(rank)] = at - begin;
  }
}

// The messages' sizes first: nobody knows how many ids the others' samples have.
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
  for (size_t s = 0; s < shards; ++s) offsets.push_back(take_offsets(out, s, global_));
  const int32_t* message = messages;
  for (int source = 0; source < placement_.ranks(); ++source) {
    for (size_t s = 0; s < shards; ++s)
      add_up(offsets[s] + source * how_.samples, message + static_cast<int64_t>(s) * how_.samples,
             how_.samples);
    message += receive_counts_[static_cast<size_t>(source)];
  }
  std::vector<Written> written;
  for (size_t s = 0; s < shards; ++s)
    written.push_back(take_lookups(out, s, offsets[s][global_], how_.weighted));
  message = messages;
  for (int source = 0; source < placement_.ranks(); ++source) {
    const int32_t* ids = message + static_cast<int64_t>(shards) * how_.samples;
    for (size_t s = 0; s < shards; ++s) {
      const int32_t* of_source = offsets[s] + source * how_.samples;
      const int64_t n = of_source[how_.samples] - of_source[0];
      const auto bytes = static_cast<size_t>(n) * kInt;
      std::memcpy(written[s].ids + of_source[0], ids, bytes);
      if (how_.weighted) std::memcpy(written[s].weights + of_source[0], ids + n, bytes);
      ids += how_.weighted ? 2 * n : n;
    }
    message += receive_counts_[static_cast<size_t>(source)];
    check(ids == message, "the ids from rank {} are {} words more than their lengths say", source,
          message - ids);
  }
}

void IdExchange::take_copies(const ClickBatch& batch, LookupBatch& out) const {
  auto entry = static_cast<size_t>(out.shards);
  for (size_t t = 0; t < placement_.tables().size(); ++t) {
    if (!placement_.replicated(static_cast<int>(t))) continue;
    const Tensor& ids = batch.ids[t];
    add_up(take_offsets(out, entry, how_.samples), batch.lengths[t].as<int32_t>(), how_.samples);
    const Written written = take_lookups(out, entry++, ids.elements(), how_.weighted);
    std::memcpy(written.ids, ids.data, ids.bytes());
    if (how_.weighted) std::memcpy(written.weights, batch.id_weights[t].data, ids.bytes());
  }
}

void IdExchange::take_mean_factors(const ClickBatch& batch, LookupBatch& out) const {
  for (size_t t = 0; t < out.mean_factors.size(); ++t)
    dispatch_wide_float(how_.dtype, [&](auto zero) {
      using T = decltype(zero);
      const Tensor written = out.written.take(how_.dtype, {how_.samples});
      out.mean_factors[t] = out.written.there(written);
      T* factors = written.as<T>();
      for (int64_t i = 0; i < how_.samples; ++i) {
        const int32_t length = batch.lengths[t].as<int32_t>()[i];
        factors[i] = length == 0 ? T(0) : T(1) / static_cast<T>(length);
      }
    });
}

void IdExchange::distribute(const ClickBatch& batch, LookupBatch& out, bool sort, Stream& stream) {
  check(batch.samples == how_.samples, "a batch of {} samples where {} are shared out", batch.samples,
        how_.samples);
  Stream host = stream.host();
  pack(batch);
  exchange(host);
  out.written.restart();
  unpack(out);
  take_copies(batch, out);
  take_mean_factors(batch, out);
  out.written.copy(stream);
  if (sort) ops_.sort_lookups(stream, out.orders, out.lookups);
}

}  // namespace trifold
