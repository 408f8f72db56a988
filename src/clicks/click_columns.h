// Readers of binary click files, which are mapped into memory: RecordClicks for records of fixed size, ColumnClicks for
// a file per column.
//
// MLPerf and facebookresearch/dlrm `.bin`: no header, one record of 160 bytes per sample: 40 little-endian i32, the
// label, 13 raw counts, 26 ids.
//
// HugeCTR "raw": no header, one record per sample: the label (f32), the dense numbers (f32, or u32 counts), then
// exactly `max_ids` u32 ids for each table.
//
// Split binary (NVIDIA's DLRM): for each part ("train", "test") one file per column group, all in sample order: labels
// (one byte), dense numbers (f16 or f32, [samples, dense]), and for each table one integer per sample.
// `feature_spec.yaml` names the files.
//
// Preprocessed clicks (clicks/click_format.h) are also read as columns.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clicks/click_source.h"
#include "clicks/click_text.h"
#include "clicks/click_transform.h"
#include "core/dtype.h"
#include "files/mapped_file.h"

namespace trifold {

enum class RecordDense { F32, I32, U32 };

struct RecordLayout {
  bool float_label = false;  // else i32
  RecordDense dense = RecordDense::I32;
};

inline constexpr RecordLayout kMlperfBin{false, RecordDense::I32};
inline constexpr RecordLayout kHugeCtrRaw{true, RecordDense::F32};
inline constexpr RecordLayout kHugeCtrRawCounts{true, RecordDense::U32};

// What a reader does to values. `transform` must not need a pass over the data, as LogMin does.
struct ClickRules {
  DenseTransform transform = DenseTransform::None;
  IdPolicy policy = IdPolicy::Error;
  LabelNeed need = LabelNeed::Required;
  bool missing_negative = false;  // a missing label counts as 0; only for samples with one label
};

// Samples in records of equal size. Every bag has max_ids ids.
class RecordClicks final : public ClickSource {
 public:
  // BadInput for a file that is missing, empty or not a whole number of records.
  RecordClicks(const std::string& path, const ClickSchema& schema, const RecordLayout& layout,
               const ClickRules& rules);

  const ClickSchema& schema() const override { return schema_; }
  int64_t samples() const override { return samples_; }
  // Also throws BadInput for a label that is not 0 or 1, unless labels are irrelevant, and for a dense value that is
  // not finite.
  void fill(std::span<const int64_t> positions, ClickPart& out) const override;

 private:
  const std::byte* record(int64_t sample) const;

  MappedFile file_;
  ClickSchema schema_;
  RecordLayout layout_;
  ClickRules rules_;
  int64_t words_ = 0;                // words per record, 4 bytes each
  std::array<float, 1024> small_{};  // transforms of 0 to 1023, as most dense values are small integers
  int64_t samples_ = 0;
};

// The files of one column of ids: unsigned or signed little-endian integers of `bytes` bytes: 1, 2, 4 or 8.
struct IdColumn {
  std::string path;
  int bytes = 4;
  // A file of u64 [samples]: the number of ids up to and including the sample. Empty: each sample has one id.
  std::string ends = {};
  // A file of f32 [ids]: their weights. Empty: all are 1.
  std::string weights = {};
  // A file of u64: for each id 1, in order, the hash of its value. Empty: there are none, or their hashes were not
  // stored.
  std::string unknown = {};
};

// The files of a column whose texts are kept with the samples.
struct KeptColumn {
  std::string name;
  std::string path;  // the texts, back to back
  std::string ends;  // a file of u64 [samples]: bytes up to and including its text
};

struct ColumnFiles {
  std::string labels;               // [samples, labels], one byte each: 0, 1 or kNoLabel
  std::string sample_weights = {};  // f32 [samples]; only if the schema has sample_weights
  std::string dense;                // [samples, dense]; empty if the schema has no dense feature
  DType dense_type = DType::F32;
  std::vector<IdColumn> ids;  // one for each table
  std::vector<KeptColumn> kept = {};
};

class ColumnClicks final : public ClickSource {
 public:
  // BadInput if the files differ in their number of samples. Bags have at most the schema's max_ids ids.
  ColumnClicks(const ColumnFiles& files, const ClickSchema& schema, const ClickRules& rules);

  const ClickSchema& schema() const override { return schema_; }
  int64_t samples() const override { return samples_; }
  void fill(std::span<const int64_t> positions, ClickPart& out) const override;
  std::optional<int64_t> longest_bag(int table) const override;
  void add_keys(int table, std::span<const int64_t> positions, std::vector<uint64_t>& out) const override;
  ClickValues first_values(int table) const override;
  std::vector<int64_t> unlabelled() const override;
  std::vector<std::string> kept_columns() const override;
  std::string kept(int64_t sample, int column) const override;

 private:
  void fill_labels(std::span<const int64_t> positions, ClickPart& out) const;
  void fill_sample_weights(std::span<const int64_t> positions, ClickPart& out) const;
  void fill_ids(int table, std::span<const int64_t> positions, ClickPart& out) const;
  // The ids of a sample: a range in the file of the table.
  struct Bag {
    int64_t first;
    int count;
  };
  Bag bag_of(int table, int64_t sample) const;
  // Entry `place` of a table's file of ids.
  uint64_t id_at(size_t table, int64_t place) const;
  void check_last_end(size_t table) const;
  void fill_weights(int table, int64_t sample, const Bag& bag, ClickPart& out) const;
  template <class T>
  void fill_dense(std::span<const int64_t> positions, ClickPart& out) const;

  ClickSchema schema_;
  ClickRules rules_;
  MappedFile labels_;
  std::unique_ptr<MappedFile> dense_;
  DType dense_type_;
  std::vector<MappedFile> ids_;
  std::vector<std::unique_ptr<MappedFile>> ends_;     // for each table; null: one id per sample
  std::vector<std::unique_ptr<MappedFile>> weights_;  // for each table; null: all 1
  std::vector<std::unique_ptr<MappedFile>> unknown_;  // for each table; null: IdColumn::unknown is empty
  std::vector<int> id_bytes_;
  std::unique_ptr<MappedFile> sample_weights_;
  struct Kept {
    std::string name;
    MappedFile texts, ends;
  };
  std::vector<Kept> kept_;
  int64_t samples_ = 0;
};

// The files and the schema of one part of a folder that has a feature_spec.yaml: channels named label,
// numerical and categorical, and sources of type split_binary with one file each. BadInput, with file and line if
// known, for anything else.
struct SplitBinary {
  ColumnFiles files;
  ClickSchema schema;
};
SplitBinary read_feature_spec(const std::string& folder, const std::string& part);

}  // namespace trifold
