// The first pass of preprocessing: turns rows of the input into columns of labels, dense features and, for each table,
// *keys*: the hashes of ids.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "clicks/click_text.h"
#include "core/random.h"
#include "core/thread_pool.h"
#include "files/raw_file.h"
#include "preprocess/preprocess.h"

namespace trifold {

// The samples of a part of the input, as columns, and counts of its lines.
struct ClickPiece {
  int64_t lines = 0;
  int64_t blank = 0;       // blank lines
  int64_t malformed = 0;   // malformed lines
  int64_t unlabelled = 0;  // valid lines without any label
  std::vector<int64_t>
      left_out;  // rows, from 0 and without blank lines, that are no samples; if options.note_left_out
  std::map<std::string, int64_t> kinds;                   // count of malformed lines, by kind of problem
  std::vector<std::pair<int64_t, LineProblem>> problems;  // line in the piece, from 0; at most ten
  std::optional<int64_t> too_long;  // a line in the piece, from 0; lines after it were not read
  size_t label_count = 1;
  std::vector<uint8_t> labels;                 // [samples, label_count]
  std::vector<float> dense;                    // [samples, dense]
  std::vector<std::vector<uint64_t>> keys;     // for each table
  std::vector<std::vector<uint32_t>> lengths;  // for each table of bags: number of keys of each sample
  std::vector<std::vector<float>> weights;     // for each table of bags: weights of its keys; empty without
  std::vector<int64_t> cut_bags;               // for each table of bags: number of bags longer than allowed
  std::vector<float> sample_weights;           // [samples]; empty without
  std::vector<double> times;                   // [samples]; empty without
  struct Texts {
    std::string bytes;              // texts of all samples, back to back
    std::vector<uint32_t> lengths;  // [samples], in bytes
  };
  std::vector<Texts> kept;                               // for each column that is kept
  float least = std::numeric_limits<float>::infinity();  // smallest dense value, transformed
  int64_t samples() const { return std::ssize(labels) / static_cast<int64_t>(label_count); }
  // Counts the current line, with index `lines`, as malformed.
  void add_problem(LineProblem problem);
};

// Decides which rows belong to the part of the input that is read (`rows`, without times by a random number of
// rows_key), and which samples without a click are dropped: a share of them, at random by `key`.
struct DropRule {
  double share = 0;
  PhiloxKey key{};
  std::optional<RowRange> rows = {};
  PhiloxKey rows_key{};
};

// Adds samples to a piece and applies the options to them. For each row:
//
//   row.begin(builder.open());              memory for the dense numbers of a row; then either
//   builder.close(row, at);                 or
//   builder.reject(problem);
//
// Both count the row as a line of the piece.
class PieceBuilder {
 public:
  // Clears the piece. The arguments must outlive the builder.
  PieceBuilder(const TextLayout& layout, const PreprocessOptions& options, const DropRule& drop,
               ClickPiece& piece);

  float* open();                     // for layout.dense values; NaN for a missing one
  void reject(LineProblem problem);  // the row is malformed
  // Adds the row, unless `drop` excludes it; random choices depend on `at`, the row's position in its input. A row
  // without any label is kept, left out, or gets labels 0, as options.unlabelled says.
  void close(ClickRow& row, int64_t at);

 private:
  void leave_out();
  bool is_left_out(ClickRow& row, int64_t at);
  bool is_in_part(int64_t at, double time) const;
  void add_ids(const ClickRow& row);
  void transform_row();

  const DropRule& drop_;
  ClickPiece& piece_;
  bool labeled_;  // the input has labels
  Unlabelled unlabelled_;
  bool notes_left_out_;
  bool sample_weights_, times_;
  size_t dense_;      // dense values per sample
  size_t first_bag_;  // index of the first table of bags
  uint64_t range_;    // keys are taken modulo this; 0: unchanged
  size_t most_ids_;   // kept in a bag
  DenseTransform transform_;
  std::vector<float> transformed_;  // the transform of each small integer
};

// Parses whole lines into `piece`. `first_byte` is the offset of the text in its unpacked file.
void parse_piece(const TextLayout& layout, std::string_view text, int64_t first_byte,
                 const PreprocessOptions& options, const DropRule& drop, ClickPiece& piece);

// Appends pieces to the column files of a folder.
class ClickColumnWriter {
 public:
  // Writes the keys of table t to the temporary file key_file(t), with `key_bytes` bytes each: 8, or 4 if all keys fit.
  // `clicks` describes the folder and names its other files.
  ClickColumnWriter(const std::string& folder, const TextLayout& layout, int key_bytes,
                    const ClickFolder& clicks);

  // Appends the pieces in order. The workers of the pool write them in parallel, at precomputed offsets.
  void write(std::span<const ClickPiece> pieces, ThreadPool& pool);
  std::string key_file(int table) const;
  int64_t samples() const { return samples_; }
  RawFile& dense() { return dense_; }

 private:
  struct Place {  // where a piece begins in the files
    int64_t sample;
    std::vector<int64_t> keys;  // for each table: index of a key
    std::vector<int64_t> kept;  // for each column that is kept: offset in bytes
  };
  Place take_place(const ClickPiece& piece);
  void write_keys(size_t table, std::span<const uint64_t> keys, int64_t first);
  void write_weights(size_t bag, std::span<const float> weights, const Place& place);
  void write_ends(size_t bag, std::span<const uint32_t> lengths, const Place& place);
  void write_kept(size_t column, const ClickPiece::Texts& texts, const Place& place);

  std::string folder_;
  int label_count_;
  int dense_count_;
  int key_bytes_;
  RawFile labels_;
  RawFile dense_;
  std::vector<RawFile> keys_;
  std::vector<RawFile> ends_;                    // for the tables of bags, which are the last ones
  std::vector<std::optional<RawFile>> weights_;  // for the same tables; nullopt without weights
  std::optional<RawFile> sample_weights_;        // nullopt without weights of samples
  std::vector<RawFile> kept_, kept_ends_;        // for each column that is kept
  std::vector<int64_t> keys_written_, kept_written_;
  int64_t samples_ = 0;
};

}  // namespace trifold
