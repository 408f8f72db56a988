// ClickBatch holds the samples of one rank for one step of a recommender; ClickSchema describes samples.
//
// A *sample* has one label (1: clicked) or several, ClickSchema::dense dense features, and for each embedding table a
// *bag* of ids. The bags of a batch are stored by table: `lengths[t]` has the number of ids of each sample in table t,
// `ids[t]` has the ids back to back in the order of the samples. Lookups and exchanges, which go table by table, thus
// read them sequentially.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"
#include "core/tensor.h"
#include "core/thread_pool.h"

namespace trifold {

struct ClickTable {
  std::string name;
  int64_t rows = 0;  // ids are in [0, rows); at most kMaxRows
  int max_ids = 1;   // per sample; 1: one-hot (a bag may still be empty)
  // How values were mapped to ids (clicks/compare_clicks.h); empty: the integers in the file are the ids.
  std::string mapping = {};
  // Older dictionaries from which this one was grown, oldest first. It begins with the rows of each of them.
  struct Older {
    int64_t rows = 0;
    std::string mapping;
    bool operator==(const Older&) const = default;
  };
  std::vector<Older> grown_from = {};
  // Name of the table whose rows this column of ids uses; empty: the column has its own table.
  std::string shares = {};

  // Reserved rows of tables with a dictionary or with keys.
  static constexpr int32_t kMissingRow = 0;  // for missing values
  static constexpr int32_t kOtherRow = 1;    // for all values without a row of their own
  bool has_other_row() const { return keyed() || mapping.starts_with(kDictionary); }
  static constexpr std::string_view kDictionary = "dictionary ";

  // Whether ids are 64-bit keys, which a KeyTable maps to rows (clicks/keys/key_table.h).
  static constexpr std::string_view kKeys = "keys of ";
  bool keyed() const { return mapping.starts_with(kKeys); }

  static constexpr int64_t kMaxRows = (int64_t{1} << 31) - 1;
  bool operator==(const ClickTable&) const = default;
};

struct ClickSchema {
  int dense = 13;
  std::vector<ClickTable> tables;
  std::string dense_transform =
      "none";                    // transform already applied to the dense numbers (clicks/click_transform.h)
  bool weighted = false;         // ids carry weights
  bool sample_weights = false;   // samples carry weights; else all have weight 1
  bool labeled = true;           // else every label is 0, for predictions only
  double dropped_negatives = 0;  // share of the samples without a click that preprocessing dropped
  // Names of the labels if samples have several; empty: there is one label, without a name.
  std::vector<std::string> labels = {};
  // Weight of each label's loss; empty: all 1.
  std::vector<float> label_weights = {};

  int64_t label_count() const { return labels.empty() ? 1 : static_cast<int64_t>(labels.size()); }
  int table_count() const { return static_cast<int>(tables.size()); }
  bool keyed() const {  // whether the ids of some table are keys
    return std::any_of(tables.begin(), tables.end(), [](const ClickTable& table) { return table.keyed(); });
  }
  const ClickTable& table(int index) const { return tables[static_cast<size_t>(index)]; }
  bool operator==(const ClickSchema&) const = default;
};

// BadInput if a table has no rows, more than kMaxRows rows, max_ids below 1, or a name that cannot be stored
// (core/stored_name.h), if two tables or two labels have the same name, or if label_weights are not positive or not one
// per label.
void check_schema(const ClickSchema& schema);

// Views into a ClickBatchBuffer, valid until it is filled again. B = samples, L = labels per sample. Samples from
// `real` on are padding: weight 0, label 0, dense 0, no ids; a mean over samples divides by the sum of the weights.
struct ClickBatch {
  int64_t first_sample = 0;  // index of sample 0 in reading order
  int64_t samples = 0;
  int64_t real = 0;
  Tensor dense;   // f32 [B, dense], transformed
  Tensor labels;  // f32 [B], with several labels [B, L]; 0 or 1
  Tensor
      weights;  // f32, like labels: that of the label times that of the sample; 0 for padding and where it is missing
  Tensor sample_weights;           // f32 [B], of padding 0; without elements if the schema has none
  std::vector<Tensor> lengths;     // for each table, i32 [B]
  std::vector<Tensor> ids;         // for each table, i32 [sum of lengths]
  std::vector<Tensor> id_weights;  // for each table, f32, like ids; empty vector if the schema has no weights
};

class ClickPart;

// Maps keys to rows, for tables whose ids are keys.
class KeyRows {
 public:
  virtual ~KeyRows() = default;
  virtual int32_t row_of(int table, uint64_t key) const = 0;
};

// Owns the memory of one batch, allocated once for the largest batch of a schema, and fills it.
class ClickBatchBuffer {
 public:
  // With a `pool`, which must outlive the buffer, batches are filled by its workers together.
  ClickBatchBuffer(const ClickSchema& schema, int64_t max_samples, ThreadPool* pool = nullptr);

  const ClickBatch& batch() const { return batch_; }
  int64_t max_samples() const { return max_samples_; }
  const ClickSchema& schema() const { return schema_; }
  // Sets the map from keys to rows for the next batches; required if a table's ids are keys. It must outlive the
  // buffer.
  void use(const KeyRows& keys) { keys_ = &keys; }

  // Makes a batch of `samples` samples, of which the first `real` are real. They are cut into contiguous parts, and the
  // pool's workers call `fill_part` for them in parallel. The batch does not depend on the cut. Rethrows the error of
  // the first part that failed; the batch is then not valid. Throws Error unless 0 <= real <= samples <= max_samples.
  void fill(int64_t first_sample, int64_t samples, int64_t real,
            FunctionRef<void(ClickPart& part)> fill_part);

 private:
  friend class ClickPart;

  void view(int64_t first_sample, int64_t samples, int64_t real);
  void clear(int64_t begin, int64_t end, float weight);
  void close_gaps(std::span<const ClickPart> parts);

  ClickSchema schema_;
  int64_t label_count_;
  int64_t max_samples_;
  ThreadPool* pool_;
  const KeyRows* keys_ = nullptr;
  Buffer memory_;
  std::vector<int32_t*> lengths_;  // for each table: memory for max_samples lengths,
  std::vector<int32_t*> ids_;      //   max_samples * max_ids ids
  std::vector<float*> id_weights_;
  float* dense_ = nullptr;
  float* labels_ = nullptr;
  float* weights_ = nullptr;
  float* sample_weights_ = nullptr;  // null: all samples have weight 1
  ClickBatch batch_;
};

// ClickPart is a contiguous range of the real samples of a batch, to be filled by one thread. For each sample i,
// counted from the part's first and in ascending order, set label(i), or call leave_out(i, l) if the sample lacks label
// l; then weigh(i, w) if samples have weights, dense(i)[d], and a bag for each table. Anything not set is 0 or empty.
class ClickPart {
 public:
  int64_t first() const { return begin_; }  // index of its first sample in the batch
  int64_t samples() const { return end_ - begin_; }

  float& label(int64_t sample, int64_t label = 0) {
    return buffer_->labels_[(begin_ + sample) * buffer_->label_count_ + label];
  }
  void leave_out(int64_t sample, int64_t label) {
    buffer_->weights_[(begin_ + sample) * buffer_->label_count_ + label] = 0;
  }
  // Only if the schema has sample_weights.
  void weigh(int64_t sample, float weight) {
    buffer_->sample_weights_[begin_ + sample] = weight;
    for (int64_t l = 0; l < buffer_->label_count_; ++l)
      buffer_->weights_[(begin_ + sample) * buffer_->label_count_ + l] *= weight;
  }
  float* dense(int64_t sample) { return buffer_->dense_ + (begin_ + sample) * buffer_->schema_.dense; }
  // Returns memory for the `count` ids of one sample in one table, count in [0, max_ids]. To be called once per table
  // and sample, in ascending order of samples.
  int32_t* bag(int table, int64_t sample, int count) {
    const auto t = static_cast<size_t>(table);
    if (count < 0 || count > buffer_->schema_.tables[t].max_ids) [[unlikely]]
      refuse_bag(table, sample, count);
    buffer_->lengths_[t][begin_ + sample] = count;
    int32_t* here = buffer_->ids_[t] + used_[t];
    used_[t] += count;
    return here;
  }
  // The map from keys to rows. Throws Error if the buffer has none.
  const KeyRows& keys() const {
    check(buffer_->keys_ != nullptr, "a batch of keys has no table of their rows");
    return *buffer_->keys_;
  }
  // Memory for the `count` weights of the table's last bag; only if the schema is weighted.
  float* bag_weights(int table, int count);

 private:
  friend class ClickBatchBuffer;
  ClickPart(ClickBatchBuffer& buffer, int64_t begin, int64_t end);
  [[noreturn]] void refuse_bag(int table, int64_t sample, int count) const;

  ClickBatchBuffer* buffer_;
  int64_t begin_;
  int64_t end_;
  std::vector<int64_t> used_;  // for each table: position of its next id
};

}  // namespace trifold
