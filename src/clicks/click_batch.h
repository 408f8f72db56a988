// ClickBatch: the samples of one rank for one step of a recommender, and the schema they follow.
//
// A sample has a label (1: clicked), `dense` numbers and one bag of ids for each embedding table. Bags of a
// batch lie table by table: `lengths[t]` says how many ids each sample has in table t, `ids[t]` holds them
// back to back in the order of the samples, so that lookups and exchanges, which go table by table, read them
// sequentially.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/function_ref.h"
#include "core/tensor.h"
#include "core/thread_pool.h"

namespace trifold {

struct ClickTable {
  std::string name;
  int64_t rows = 0;  // ids are in [0, rows); at most kMaxRows
  int max_ids = 1;   // of one sample; 1: one-hot (a bag may still be empty)
  // How a value became an id (clicks/compare_clicks.h); empty: the numbers of the file are the ids.
  std::string mapping = {};

  static constexpr int64_t kMaxRows = (int64_t{1} << 31) - 1;
  bool operator==(const ClickTable&) const = default;
};

struct ClickSchema {
  int dense = 13;
  std::vector<ClickTable> tables;
  std::string dense_transform = "none";  // what was done to the dense numbers (clicks/click_transform.h)
  bool weighted = false;                 // ids carry weights
  bool labeled = true;                   // else every label is 0: for predictions alone

  int table_count() const { return static_cast<int>(tables.size()); }
  const ClickTable& table(int index) const { return tables[static_cast<size_t>(index)]; }
  bool operator==(const ClickSchema&) const = default;
};

// BadInput when a table has no row, more than kMaxRows or no place for an id, a name that cannot be stored
// (core/stored_name.h), or two have one name.
void check_schema(const ClickSchema& schema);

// Views into a ClickBatchBuffer, B = samples. Samples from `real` on are padding: weight 0, label 0, dense 0,
// no ids; a mean over samples divides by the sum of the weights.
struct ClickBatch {
  int64_t first_sample = 0;  // number of sample 0 in the order it was read in
  int64_t samples = 0;
  int64_t real = 0;
  Tensor dense;                    // f32 [B, dense], transformed
  Tensor labels;                   // f32 [B], 0 or 1
  Tensor weights;                  // f32 [B], 1 or, for padding, 0
  std::vector<Tensor> lengths;     // for each table, i32 [B]
  std::vector<Tensor> ids;         // for each table, i32 [sum of lengths]
  std::vector<Tensor> id_weights;  // for each table, f32 as ids; no tensors where the schema has no weights
};

class ClickPart;

// Owns the memory of one batch, allocated once for the largest batch of a schema, and fills it in.
class ClickBatchBuffer {
 public:
  // With a `pool`, which must outlive the buffer, batches are filled by its workers together.
  ClickBatchBuffer(const ClickSchema& schema, int64_t max_samples, ThreadPool* pool = nullptr);

  const ClickBatch& batch() const { return batch_; }
  int64_t max_samples() const { return max_samples_; }
  const ClickSchema& schema() const { return schema_; }

  // Makes a batch of `samples` samples, of which the first `real` are real. They are cut into parts of
  // neighbours, and `fill_part` is called for each: on the workers of the pool, for several parts at a time.
  // The batch does not depend on how it was cut. Rethrows the error of the first part that has one; the batch
  // is not valid then. An Error unless 0 <= real <= samples <= max_samples.
  void fill(int64_t first_sample, int64_t samples, int64_t real,
            FunctionRef<void(ClickPart& part)> fill_part);

 private:
  friend class ClickPart;

  void view(int64_t first_sample, int64_t samples, int64_t real);
  void clear(int64_t begin, int64_t end, float weight);
  void close_gaps(std::span<const ClickPart> parts);

  ClickSchema schema_;
  int64_t max_samples_;
  ThreadPool* pool_;
  Buffer memory_;
  std::vector<int32_t*> lengths_;  // for each table: memory for max_samples lengths,
  std::vector<int32_t*> ids_;      //   max_samples * max_ids ids
  std::vector<float*> id_weights_;
  float* dense_ = nullptr;
  float* labels_ = nullptr;
  float* weights_ = nullptr;
  ClickBatch batch_;
};

// Neighbouring real samples of a batch that is being filled. For each of them, counted from the part's first
// and ascending: label(i) = ..., dense(i)[d] = ..., and for each table a bag. What is not set is 0 or empty.
class ClickPart {
 public:
  int64_t first() const { return begin_; }  // its first sample's place in the batch
  int64_t samples() const { return end_ - begin_; }

  float& label(int64_t sample) { return buffer_->labels_[begin_ + sample]; }
  float* dense(int64_t sample) { return buffer_->dense_ + (begin_ + sample) * buffer_->schema_.dense; }
  // Room for the `count` ids of one sample in one table, in [0, max_ids]. Once per table and sample, in
  // ascending order of the samples.
  int32_t* bag(int table, int64_t sample, int count);
  // The weights of the bag that was asked for last in that table; only where the schema is weighted.
  float* bag_weights(int table, int count);

 private:
  friend class ClickBatchBuffer;
  ClickPart(ClickBatchBuffer& buffer, int64_t begin, int64_t end);

  ClickBatchBuffer* buffer_;
  int64_t begin_;
  int64_t end_;
  std::vector<int64_t> used_;  // for each table: where its next id goes
};

}  // namespace trifold
