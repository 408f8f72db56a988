#include "data/click_batch.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/stored_name.h"

namespace trifold {

namespace {

// Every array starts on a cache line.
int64_t padded(int64_t elements) { return (elements + 15) / 16 * 16; }

int64_t capacity(const ClickTable& table, int64_t samples) { return samples * table.max_ids; }

}  // namespace

void check_schema(const ClickSchema& schema) {
  std::set<std::string> names;
  if (schema.dense < 0) bad_input("a schema has {} dense features", schema.dense);
  for (const ClickTable& table : schema.tables) {
    check_storable_part("table", table.name);
    if (table.rows < 1 || table.rows > ClickTable::kMaxRows)
      bad_input("table {} has {} rows; a table has at least 1 and at most {}", table.name, table.rows,
                ClickTable::kMaxRows);
    if (table.max_ids < 1) bad_input("table {} has room for {} ids a sample", table.name, table.max_ids);
    if (!names.insert(table.name).second) bad_input("two tables are called {}", table.name);
  }
}

ClickBatchBuffer::ClickBatchBuffer(const ClickSchema& schema, int64_t max_samples)
    : schema_(schema), max_samples_(max_samples), used_(schema.tables.size(), 0) {
  check_schema(schema);
  check(max_samples >= 0, "a batch of {} samples", max_samples);
  int64_t words = padded(max_samples * schema.dense) + 2 * padded(max_samples);
  for (const ClickTable& table : schema.tables)
    words += padded(max_samples) + (schema.weighted ? 2 : 1) * padded(capacity(table, max_samples));
  memory_ = Buffer(static_cast<size_t>(words) * sizeof(float));

  auto* next = reinterpret_cast<float*>(memory_.data());
  const auto take = [&](int64_t elements) { return std::exchange(next, next + padded(elements)); };
  dense_ = take(max_samples * schema.dense);
  labels_ = take(max_samples);
  weights_ = take(max_samples);
  for (const ClickTable& table : schema.tables) {
    lengths_.push_back(reinterpret_cast<int32_t*>(take(max_samples)));
    ids_.push_back(reinterpret_cast<int32_t*>(take(capacity(table, max_samples))));
    if (schema.weighted) id_weights_.push_back(take(capacity(table, max_samples)));
  }
  batch_.lengths.resize(schema.tables.size());
  batch_.ids.resize(schema.tables.size());
  batch_.id_weights.resize(id_weights_.size());
  begin(0, 0, 0);
  finish();
}

void ClickBatchBuffer::begin(int64_t first_sample, int64_t samples, int64_t real) {
  check(0 <= real && real <= samples && samples <= max_samples_,
        "a batch of {} samples, {} of them real, in a buffer for {}", samples, real, max_samples_);
  batch_.first_sample = first_sample;
  batch_.samples = samples;
  batch_.real = real;
  batch_.dense = {dense_, DType::F32, {samples, schema_.dense}};
  batch_.labels = {labels_, DType::F32, {samples}};
  batch_.weights = {weights_, DType::F32, {samples}};
  std::fill(dense_, dense_ + samples * schema_.dense, 0.0F);
  std::fill(labels_, labels_ + samples, 0.0F);
  std::fill(weights_, weights_ + real, 1.0F);
  std::fill(weights_ + real, weights_ + samples, 0.0F);
  for (size_t t = 0; t < lengths_.size(); ++t) {
    batch_.lengths[t] = {lengths_[t], DType::I32, {samples}};
    std::fill(lengths_[t], lengths_[t] + samples, 0);
    used_[t] = 0;
  }
}

int32_t* ClickBatchBuffer::bag(int table, int64_t sample, int count) {
  const auto t = static_cast<size_t>(table);
  check(0 <= count && count <= schema_.tables[t].max_ids,
        "sample {} has {} ids in table {}, which has room for {}", batch_.first_sample + sample, count,
        schema_.tables[t].name, schema_.tables[t].max_ids);
  lengths_[t][sample] = count;
  int32_t* here = ids_[t] + used_[t];
  used_[t] += count;
  return here;
}

float* ClickBatchBuffer::bag_weights(int table, int count) {
  const auto t = static_cast<size_t>(table);
  return id_weights_[t] + used_[t] - count;
}

void ClickBatchBuffer::finish() {
  for (size_t t = 0; t < ids_.size(); ++t) {
    batch_.ids[t] = {ids_[t], DType::I32, {used_[t]}};
    if (schema_.weighted) batch_.id_weights[t] = {id_weights_[t], DType::F32, {used_[t]}};
  }
}

}  // namespace trifold
