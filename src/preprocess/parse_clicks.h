// The first half of preprocessing: turns text files into labels, dense numbers and, for each table, hashes.
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

// A piece of the input as columns.
struct ClickPiece {
  int64_t lines = 0;
  int64_t blank = 0;              // of these
  int64_t malformed = 0;          // of these
  int64_t unlabelled = 0;         // of these, not malformed but without a label
  std::vector<int64_t> left_out;  // rows of the piece, from 0, that are no samples; if options.note_left_out
  std::map<std::string, int64_t> kinds;                   // malformed lines of each kind of problem
  std::vector<std::pair<int64_t, LineProblem>> problems;  // line in the piece, from 0; at most ten
  std::optional<int64_t> too_long;  // a line in the piece, from 0; the rest was not read
  size_t label_count = 1;
  std::vector<uint8_t> labels;                 // [samples, label_count]
  std::vector<float> dense;                    // [samples, dense]
  std::vector<std::vector<uint64_t>> keys;     // for each table
  std::vector<std::vector<uint32_t>> lengths;  // for each table of bags: number of keys of each sample
  std::vector<std::vector<float>> weights;     // for each table of bags: of its keys; empty without weights
  std::vector<int64_t> cut_bags;               // for each table of bags: number of bags longer than allowed
  std::vector<float> sample_weights;           // [samples]; empty without
  std::vector<double> times;                   // the same
  struct Texts {
    std::string bytes;              // of all samples
    std::vector<uint32_t> lengths;  // [samples]
  };
  std::vector<Texts> kept;                               // for each column that is kept
  float least = std::numeric_limits<float>::infinity();  // least of all dense numbers
  int64_t samples() const { return std::ssize(labels) / static_cast<int64_t>(label_count); }
  // The line, `lines` so far, is malformed.
  void add_problem(LineProblem problem);
};

// Decides which rows are in the part of the input that is read, and which samples without a click are dropped.
struct DropRule {
  double share = 0;
  PhiloxKey key{};
  std::optional<RowRange> rows = {};
  PhiloxKey rows_key{};
};

// Adds samples to a piece and applies the options to them:
//
//   row.begin(builder.open());              memory for the dense numbers of a row; then either
//   builder.close(row, at);                 or
//   builder.reject(problem);
//
// Both count the row as a line of the piece.
class PieceBuilder {
 public:
  // Empties the piece. References must stay valid.
  PieceBuilder(const TextLayout& layout, const PreprocessOptions& options, const DropRule& drop,
               ClickPiece& piece);

  float* open();                     // for layout.dense numbers; NaN stands for a missing one
  void reject(LineProblem problem);  // the row is malformed
  // `at`, the row's position in its input, decides whether it is dropped. Labels may be changed, as options.unlabelled
  // says.
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
  size_t dense_;      // numbers of a sample
  size_t first_bag_;  // tables before the first of bags
  uint64_t range_;    // limit of the ids; 0: none
  size_t most_ids_;   // of a bag
  DenseTransform transform_;
  std::vector<float> transformed_;  // transforms of small integers
};

// Parses whole lines. `first_byte` is the position of the text in its file.
void parse_piece(const TextLayout& layout, std::string_view text, int64_t first_byte,
                 const PreprocessOptions& options, const DropRule& drop, ClickPiece& piece);

// Writes pieces to the files of a folder, one after the other.
class ClickColumnWriter {
 public:
  // Table t's hashes go to key_file(t), in key_bytes each: 8, or 4 if all fit. `clicks` names the files of the folder.
  ClickColumnWriter(const std::string& folder, const TextLayout& layout, int key_bytes,
                    const ClickFolder& clicks);

  // Each worker of the pool writes one of the pieces.
  void write(std::span<const ClickPiece> pieces, ThreadPool& pool);
  std::string key_file(int table) const;
  int64_t samples() const { return samples_; }
  RawFile& dense() { return dense_; }

 private:
  struct Place {  // of a piece
    int64_t sample;
    std::vector<int64_t> keys;  // for each table
    std::vector<int64_t> kept;  // for each column that is kept: byte
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
  std::vector<std::optional<RawFile>> weights_;  // the same; none without weights
  std::optional<RawFile> sample_weights_;        // none without weights of samples
  std::vector<RawFile> kept_, kept_ends_;        // for each column that is kept
  std::vector<int64_t> keys_written_, kept_written_;
  int64_t samples_ = 0;
};

}  // namespace trifold
