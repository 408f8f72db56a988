#include "embedding/lookup_batch.h"

#include <algorithm>

#include "ops/cuda/workspace.h"

namespace trifold {

namespace {

std::vector<LookupBatch::Capacity> capacities_of(const Placement& placement, int rank,
                                                 const LookupOptions& options) {
  const int64_t samples = options.samples;
  std::vector<LookupBatch::Capacity> capacities;
  const auto add = [&](const EmbeddingTable& table, int64_t rows, int64_t bags, int64_t column, bool cached) {
    const int64_t ids = bags * table.max_ids;
    check(ids < int64_t{1} << 31, "table {}: a global batch has {} ids, more than 2^31 - 1", table.name, ids);
    capacities.push_back({rows, bags, ids, column, cached});
  };
  const bool alone = placement.ranks() == 1;
  for (const Shard& shard : placement.shards_of(rank)) {
    const EmbeddingTable& table = placement.tables()[static_cast<size_t>(shard.table)];
    // A single rank looks up directly into the features.
    add(table, shard.rect.extent[0], samples * placement.ranks(),
        alone ? placement.feature_column(shard.table) : shard.column, options.cached);
  }
  for (size_t t = 0; t < placement.tables().size(); ++t) {
    const EmbeddingTable& table = placement.tables()[t];
    if (placement.replicated(static_cast<int>(t)))
      add(table, table.rows, samples, placement.feature_column(static_cast<int>(t)), false);
  }
  return capacities;
}

// Takes the tensors of one list's order, with their types and sizes.
template <class Take>
LookupOrder make_order(const LookupBatch::Capacity& capacity, bool weighted, Take take) {
  LookupOrder order;
  order.rows = capacity.rows;
  order.row = take(DType::I32, capacity.ids);
  order.begin = take(DType::I32, capacity.ids + 1);
  order.bag = take(DType::I32, capacity.ids);
  if (weighted) order.weight = take(DType::F32, capacity.ids);
  order.count = take(DType::I64, 1);
  order.scratch = take(DType::I64, 2 * capacity.ids);
  return order;
}

}  // namespace

LookupMemory lookup_memory(const Placement& placement, int rank, const LookupOptions& options) {
  LookupMemory memory;
  if (options.mean) memory.written = placement.tables().size() * CopyIn::room(options.dtype, options.samples);
  std::vector<int64_t> ids;
  for (const LookupBatch::Capacity& capacity : capacities_of(placement, rank, options)) {
    memory.written +=
        CopyIn::room(DType::I32, capacity.bags + 1) +
        ((options.weighted ? 2 : 1) + (capacity.cached ? 2 : 0)) * CopyIn::room(DType::I32, capacity.ids);
    make_order(capacity, options.weighted, [&](DType dtype, int64_t count) {
      memory.orders += static_cast<size_t>(count) * size_of(dtype);
      return Tensor{};
    });
    ids.push_back(capacity.ids);
  }
  memory.sorting = cuda::sort_workspace(ids);
  return memory;
}

LookupBatch::LookupBatch(const OpTable& ops, const Placement& placement, int rank,
                         const LookupOptions& options)
    : weighted(options.weighted),
      shards(static_cast<int64_t>(placement.shards_of(rank).size())),
      capacities(capacities_of(placement, rank, options)),
      mean_factors(options.mean ? placement.tables().size() : 0),
      written(ops, lookup_memory(placement, rank, options).written),
      ops_(ops) {
  cached.resize(capacities.size());
  for (const Capacity& capacity : capacities) {
    BagLookup lookup;
    lookup.column = capacity.column;
    lookups.push_back(lookup);
    orders.push_back(make_order(capacity, weighted, [&](DType dtype, int64_t count) {
      memory.emplace_back(static_cast<size_t>(count) * size_of(dtype), ops.device);
      return memory.back().tensor(dtype, {count});
    }));
  }
}

int32_t* LookupBatch::take_offsets(size_t list) {
  const Tensor offsets = written.take(DType::I32, {capacities[list].bags + 1});
  lookups[list].offsets = written.operand(offsets);
  offsets.as<int32_t>()[0] = 0;
  return offsets.as<int32_t>();
}

LookupBatch::Ids LookupBatch::take_ids(size_t list, int64_t count) {
  BagLookup& lookup = lookups[list];
  LookupOrder& order = orders[list];
  const Shape all{count};
  const Tensor ids = written.take(DType::I32, all);
  lookup.ids = written.operand(ids);
  order.row.shape = order.bag.shape = all;
  order.begin.shape = {count + 1};
  order.scratch.shape = {2 * count};
  order.rows = capacities[list].rows;
  const auto numbers = [&](const Tensor& of) {
    return std::span(of.as<int32_t>(), static_cast<size_t>(count));
  };
  cached[list] = {numbers(ids), {}, {}};
  if (capacities[list].cached)
    cached[list].row_memory = {numbers(written.take(DType::I32, all)), numbers(written.take(DType::I32, all)),
                               0};
  if (!weighted) return {ids.as<int32_t>(), nullptr};
  const Tensor weights = written.take(DType::F32, all);
  lookup.weights = written.operand(weights);
  order.weight.shape = all;
  return {ids.as<int32_t>(), weights.as<float>()};
}

void LookupBatch::finish(bool sort, Stream& stream) {
  written.copy(stream);
  if (!sort) return;
  const auto there = [&](std::span<int32_t> of) {
    return written.operand({of.data(), DType::I32, {std::ssize(of)}});
  };
  sorted_ = lookups;
  for (size_t i = 0; i < cached.size(); ++i)
    if (cached[i].rows) {
      sorted_[i].ids = there(cached[i].rows->numbers);
      orders[i].rows = cached[i].rows->count;
    }
  ops_.sort_lookups(stream, orders, sorted_);
  for (size_t i = 0; i < cached.size(); ++i)
    if (cached[i].rows && cached[i].rows->count > 0)
      ops_.copy(stream, orders[i].row.flat(0, cached[i].rows->count),
                there(cached[i].rows->slots).flat(0, cached[i].rows->count));
}

void LookupBatch::fill_up() {
  written.restart();
  for (size_t list = 0; list < capacities.size(); ++list) {
    const Capacity& capacity = capacities[list];
    int32_t* offsets = take_offsets(list);
    for (int64_t bag = 1; bag <= capacity.bags; ++bag)
      offsets[bag] = static_cast<int32_t>(bag * (capacity.ids / capacity.bags));
    const Ids all = take_ids(list, capacity.ids);
    std::fill_n(all.ids, capacity.ids, 0);
    if (weighted) std::fill_n(all.weights, capacity.ids, 1.0F);
  }
}

size_t LookupBatch::bytes() const {
  size_t bytes = written.bytes();
  for (const Buffer& buffer : memory) bytes += buffer.bytes();
  return bytes;
}

}  // namespace trifold
