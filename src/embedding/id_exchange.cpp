#include "embedding/id_exchange.h"

#include <cstring>
#include <numeric>

namespace trifold {

namespace {

constexpr size_t kInt = sizeof(int32_t);

const EmbeddingTable& table_of(const Placement& placement, const Shard& shard) {
  return placement.tables()[static_cast<size_t>(shard.table)];
}

// Views of `n` lookups in the memory that make_batch took, in its order.
void set_lookups(LookupBatch& batch, size_t entry, int64_t n, bool weighted) {
  BagLookup& lookup = batch.lookups[entry];
  LookupOrder& order = batch.orders[entry];
  const Shape all{n};
  lookup.ids.shape = all;
  order.row.shape = order.bag.shape = all;
  order.begin.shape = {n + 1};
  order.scratch.shape = {2 * n};
  if (weighted) lookup.weights.shape = order.weight.shape = all;
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
  auto batch = std::make_unique<LookupBatch>();
  const auto take = [&](DType dtype, int64_t count) {
    batch->memory.emplace_back(static_cast<size_t>(count) * size_of(dtype));
    return batch->memory.back().tensor(dtype, {count});
  };
  const auto add = [&](const EmbeddingTable& table, int64_t rows, int64_t bags, int64_t column) {
    const int64_t most = bags * table.max_ids;
    check(most < int64_t{1} << 31, "table {}: {} ids in a global batch are too many", table.name, most);
    BagLookup lookup;
    lookup.ids = take(DType::I32, most);
    lookup.offsets = take(DType::I32, bags + 1);
    lookup.column = column;
    LookupOrder order;
    order.rows = rows;
    order.row = take(DType::I32, most);
    order.begin = take(DType::I32, most + 1);
    order.bag = take(DType::I32, most);
    order.count = take(DType::I64, 1);
    order.scratch = take(DType::I64, 2 * most);
    if (how_.weighted) {
      lookup.weights = take(DType::F32, most);
      order.weight = take(DType::F32, most);
    }
    batch->lookups.push_back(lookup);
    batch->orders.push_back(order);
  };
  const bool alone = placement_.ranks() == 1;
  for (const Shard& shard : placement_.shards_of(comm_.rank())) {
    const EmbeddingTable& table = table_of(placement_, shard);
    // One rank looks up straight into the features, behind the bottom MLP's vector.
    add(table, shard.rect.extent[0], global_, shard.column + (alone ? table.width : 0));
  }
  batch->shards = static_cast<int64_t>(batch->lookups.size());
  for (size_t t = 0; t < placement_.tables().size(); ++t) {
    const EmbeddingTable& table = placement_.tables()[t];
    if (placement_.replicated(static_cast<int>(t)))
      add(table, table.rows, how_.samples, static_cast<int64_t>(t + 1) * table.width);
    if (how_.mean) batch->mean_factors.push_back(take(how_.dtype, how_.samples));
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

void IdExchange::unpack(LookupBatch& out) const {
  const auto* message = reinterpret_cast<const int32_t*>(receive_.data());
  const auto shards = static_cast<size_t>(out.shards);
  std::vector<int64_t> counts(shards, 0);
  for (size_t s = 0; s < shards; ++s) out.lookups[s].offsets.as<int32_t>()[0] = 0;
  for (int source = 0; source < placement_.ranks(); ++source) {
    const int32_t* lengths = message;
    const int32_t* ids = message + static_cast<int64_t>(shards) * how_.samples;
    for (size_t s = 0; s < shards; ++s, lengths += how_.samples) {
      const BagLookup& lookup = out.lookups[s];
      int32_t* offsets = lookup.offsets.as<int32_t>() + source * how_.samples;
      for (int64_t i = 0; i < how_.samples; ++i) offsets[i + 1] = offsets[i] + lengths[i];
      const int64_t n = offsets[how_.samples] - offsets[0];
      const auto bytes = static_cast<size_t>(n) * kInt;
      std::memcpy(static_cast<int32_t*>(lookup.ids.data) + counts[s], ids, bytes);
      if (how_.weighted) std::memcpy(static_cast<float*>(lookup.weights.data) + counts[s], ids + n, bytes);
      ids += how_.weighted ? 2 * n : n;
      counts[s] += n;
    }
    check(ids - message == receive_counts_[static_cast<size_t>(source)],
          "the ids from rank {} are {} words, not the {} their lengths say", source,
          receive_counts_[static_cast<size_t>(source)], ids - message);
    message = ids;
  }
  for (size_t s = 0; s < shards; ++s) set_lookups(out, s, counts[s], how_.weighted);
}

void IdExchange::take_copies(const ClickBatch& batch, LookupBatch& out) const {
  auto entry = static_cast<size_t>(out.shards);
  for (size_t t = 0; t < placement_.tables().size(); ++t) {
    if (!placement_.replicated(static_cast<int>(t))) continue;
    const BagLookup& lookup = out.lookups[entry];
    const Tensor& ids = batch.ids[t];
    std::memcpy(lookup.ids.data, ids.data, ids.bytes());
    if (how_.weighted) std::memcpy(lookup.weights.data, batch.id_weights[t].data, ids.bytes());
    int32_t* offsets = lookup.offsets.as<int32_t>();
    offsets[0] = 0;
    for (int64_t i = 0; i < how_.samples; ++i)
      offsets[i + 1] = offsets[i] + batch.lengths[t].as<int32_t>()[i];
    set_lookups(out, entry++, ids.elements(), how_.weighted);
  }
}

void IdExchange::take_mean_factors(const ClickBatch& batch, LookupBatch& out) const {
  for (size_t t = 0; t < out.mean_factors.size(); ++t)
    dispatch_wide_float(how_.dtype, [&](auto zero) {
      using T = decltype(zero);
      T* factors = out.mean_factors[t].as<T>();
      for (int64_t i = 0; i < how_.samples; ++i) {
        const int32_t length = batch.lengths[t].as<int32_t>()[i];
        factors[i] = length == 0 ? T(0) : T(1) / static_cast<T>(length);
      }
    });
}

void IdExchange::distribute(const ClickBatch& batch, LookupBatch& out, bool sort, Stream& stream) {
  check(batch.samples == how_.samples, "a batch of {} samples where {} are shared out", batch.samples,
        how_.samples);
  pack(batch);
  const auto counts = [](std::vector<int64_t>& c) -> Tensor {
    return {c.data(), DType::I64, {static_cast<int64_t>(c.size())}};
  };
  comm_.all_to_all(counts(receive_counts_), counts(send_counts_), ones_, ones_, stream);
  stream.synchronize();
  comm_.all_to_all(receive_.tensor(DType::I32, {sum(receive_counts_)}),
                   send_.tensor(DType::I32, {sum(send_counts_)}), receive_counts_, send_counts_, stream);
  stream.synchronize();
  unpack(out);
  take_copies(batch, out);
  take_mean_factors(batch, out);
  if (sort) ops_.sort_lookups(stream, out.orders, out.lookups);
}

}  // namespace trifold
