#include "clicks/click_batch.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/stored_name.h"

namespace trifold {

namespace {

// Every array starts on a cache line. The line between two of them keeps arrays of 2^n samples, which are filled together,
// from competing for the same few sets of a cache.
int64_t padded(int64_t elements) { return (elements + 15) / 16 * 16 + 16; }

// The memory for the ids of `samples` samples; a part's ids begin after the memory of all samples before it.
int64_t capacity(const ClickTable& table, int64_t samples) { return samples * table.max_ids; }

constexpr int64_t kSmallestPart = 256;  // samples; waking a worker for fewer takes longer than reading them

}  // namespace

void check_schema(const ClickSchema& schema) {
  std::set<std::string> names;
  if (schema.dense < 0) bad_input("there are {} dense features; 0 or more are needed", schema.dense);
  for (const ClickTable& table : schema.tables) {
    check_storable_part("table", table.name);
    if (table.rows < 1 || table.rows > ClickTable::kMaxRows)
      bad_input("table {} has {} rows; a table has at least 1 and at most {}", table.name, table.rows,
                ClickTable::kMaxRows);
    if (table.max_ids < 1)
      bad_input("table {} has room for {} ids a sample; at least 1 is needed", table.name, table.max_ids);
    if (!names.insert(table.name).second) bad_input("two tables are called {}", table.name);
  }
  names.clear();
  for (const std::string& label : schema.labels) {
    check_storable_part("label", label);
    if (!names.insert(label).second) bad_input("two labels are called {}", label);
  }
  if (!schema.label_weights.empty() && std::ssize(schema.label_weights) != schema.label_count())
    bad_input("there are {} labels, but {} label weights", schema.label_count(), schema.label_weights.size());
  for (const float weight : schema.label_weights)
    if (!(weight > 0) || !std::isfinite(weight))
      bad_input("a label has the weight {}; weights must be above 0", weight);
}

ClickBatchBuffer::ClickBatchBuffer(const ClickSchema& schema, int64_t max_samples, ThreadPool* pool)
    : schema_(schema), label_count_(schema.label_count()), max_samples_(max_samples), pool_(pool) {
  check_schema(schema);
  check(max_samples >= 0, "a batch cannot have {} samples", max_samples);
  const int64_t max_labels = max_samples * label_count_;
  int64_t words = padded(max_samples * schema.dense) + 2 * padded(max_labels);
  if (schema.sample_weights) words += padded(max_samples);
  for (const ClickTable& table : schema.tables)
    words += padded(max_samples) + (schema.weighted ? 2 : 1) * padded(capacity(table, max_samples));
  memory_ = Buffer(static_cast<size_t>(words) * sizeof(float));

  auto* next = reinterpret_cast<float*>(memory_.data());
  const auto take = [&](int64_t elements) { return std::exchange(next, next + padded(elements)); };
  dense_ = take(max_samples * schema.dense);
  labels_ = take(max_labels);
  weights_ = take(max_labels);
  if (schema.sample_weights) sample_weights_ = take(max_samples);
  for (const ClickTable& table : schema.tables) {
    lengths_.push_back(reinterpret_cast<int32_t*>(take(max_samples)));
    ids_.push_back(reinterpret_cast<int32_t*>(take(capacity(table, max_samples))));
    if (schema.weighted) id_weights_.push_back(take(capacity(table, max_samples)));
  }
  batch_.lengths.resize(schema.tables.size());
  batch_.ids.resize(schema.tables.size());
  batch_.id_weights.resize(id_weights_.size());
  view(0, 0, 0);
  close_gaps({});
}

void ClickBatchBuffer::view(int64_t first_sample, int64_t samples, int64_t real) {
  batch_.first_sample = first_sample;
  batch_.samples = samples;
  batch_.real = real;
  batch_.dense = {dense_, DType::F32, {samples, schema_.dense}};
  const Shape shape = label_count_ == 1 ? Shape{samples} : Shape{samples, label_count_};
  batch_.labels = {labels_, DType::F32, shape};
  batch_.weights = {weights_, DType::F32, shape};
  batch_.sample_weights = {sample_weights_, DType::F32, {sample_weights_ == nullptr ? 0 : samples}};
  for (size_t t = 0; t < lengths_.size(); ++t) batch_.lengths[t] = {lengths_[t], DType::I32, {samples}};
}

void ClickBatchBuffer::clear(int64_t begin, int64_t end, float weight) {
  std::fill(dense_ + begin * schema_.dense, dense_ + end * schema_.dense, 0.0F);
  std::fill(labels_ + begin * label_count_, labels_ + end * label_count_, 0.0F);
  std::fill(weights_ + begin * label_count_, weights_ + end * label_count_, weight);
  if (sample_weights_ != nullptr) std::fill(sample_weights_ + begin, sample_weights_ + end, weight);
  for (size_t l = 0; l < schema_.label_weights.size(); ++l)
    for (int64_t i = begin; i < end; ++i)
      weights_[i * label_count_ + static_cast<int64_t>(l)] *= schema_.label_weights[l];
  for (int32_t* lengths : lengths_) std::fill(lengths + begin, lengths + end, 0);
}

void ClickBatchBuffer::fill(int64_t first_sample, int64_t samples, int64_t real,
                            FunctionRef<void(ClickPart&)> fill_part) {
  check(0 <= real && real <= samples && samples <= max_samples_,
        "a batch of {} samples, {} of them real, does not fit into a buffer for {}", samples, real,
        max_samples_);
  view(first_sample, samples, real);
  const int64_t workers = pool_ == nullptr ? 1 : pool_->size();
  const int64_t each = std::max((real + workers - 1) / workers, kSmallestPart);
  std::vector<ClickPart> parts;
  for (int64_t begin = 0; begin < real; begin += each)
    parts.push_back(ClickPart(*this, begin, std::min(begin + each, real)));
  const auto fill_one = [&](size_t part) {
    clear(parts[part].begin_, parts[part].end_, 1);
    fill_part(parts[part]);
  };
  clear(real, samples, 0);
  if (parts.size() > 1) {
    pool_->run([&](int worker) {
      if (static_cast<size_t>(worker) < parts.size()) fill_one(static_cast<size_t>(worker));
    });
  } else if (!parts.empty()) {
    fill_one(0);
  }
  close_gaps(parts);
}

// Bags that are not full leave a gap after a part's ids; the ids of later parts move there.
void ClickBatchBuffer::close_gaps(std::span<const ClickPart> parts) {
  for (size_t t = 0; t < ids_.size(); ++t) {
    int64_t end = 0;
    const auto move = [end = &end](auto* numbers, int64_t from, int64_t count) {
      if (from != *end) std::copy(numbers + from, numbers + from + count, numbers + *end);
    };
    for (const ClickPart& part : parts) {
      const int64_t from = capacity(schema_.tables[t], part.begin_);
      const int64_t count = part.used_[t] - from;
      move(ids_[t], from, count);
      if (schema_.weighted) move(id_weights_[t], from, count);
      end += count;
    }
    batch_.ids[t] = {ids_[t], DType::I32, {end}};
    if (schema_.weighted) batch_.id_weights[t] = {id_weights_[t], DType::F32, {end}};
  }
}

ClickPart::ClickPart(ClickBatchBuffer& buffer, int64_t begin, int64_t end)
    : buffer_(&buffer), begin_(begin), end_(end) {
  used_.reserve(buffer.schema_.tables.size() +
                64 / sizeof(int64_t));  // shares no cache line with another part's
  for (const ClickTable& table : buffer.schema_.tables) used_.push_back(capacity(table, begin));
}

void ClickPart::refuse_bag(int table, int64_t sample, int count) const {
  const ClickTable& spec = buffer_->schema_.tables[static_cast<size_t>(table)];
  fail("sample {} has {} ids in table {}, which has room for {}",
       buffer_->batch_.first_sample + begin_ + sample, count, spec.name, spec.max_ids);
}

float* ClickPart::bag_weights(int table, int count) {
  const auto t = static_cast<size_t>(table);
  return buffer_->id_weights_[t] + used_[t] - count;
}

}  // namespace trifold
