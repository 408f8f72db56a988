// `trifold preprocess`: converts text or arrays of clicks (preprocess/click_reader.h) to the columns of
// clicks/click_format.h.
//
// It makes two passes. The first parses the input in pieces, one per core, and writes labels, transformed dense
// features and, to temporary files, the hashes of each table. The second turns the hashes of each table into ids
// (preprocess/ids/number_ids.h), several tables at a time. The result depends neither on the number of threads nor on
// the memory limit, and memory does not grow with the input.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "clicks/click_format.h"
#include "clicks/click_layout.h"
#include "clicks/click_samples.h"
#include "clicks/click_text.h"
#include "core/function_ref.h"
#include "core/thread_pool.h"
#include "preprocess/ids/unknown_ids.h"

namespace trifold {

// A part of the input: the rows whose time, in seconds since 1970, is in [first, end). Rows without times are assigned
// at random: each draws a number from [0, 1) that takes the place of its time.
struct RowRange {
  double first, end;
};

struct PreprocessOptions : ClickSampleOptions {
  std::vector<std::string> inputs;      // files or folders (clicks/click_input.h), read in this order
  std::string output;                   // folder to create; it must not exist
  std::string format = "auto";          // see find_layout
  std::optional<NamedColumns> columns;  // see find_layout
  DenseTransform transform = DenseTransform::Log1p;
  // Hashes are taken modulo this before anything else; 0: unchanged.
  int64_t max_ind_range = 0;
  bool hash_ids = false;            // ids are hashes modulo max_ind_range, without a dictionary
  bool keep_keys = false;           // ids are keys: the hashes themselves
  int64_t frequency_threshold = 1;  // occurrences that a value needs to get its own id
  // A folder of clicks whose encoding is reused: its dictionaries, m of LogMin and, unless `columns` or a format are
  // given, its named columns.
  std::optional<std::string> dictionaries_of;
  // Also take hash_ids, keep_keys, max_ind_range, max_bag and the transform from the folder of dictionaries_of, whose
  // ids may then also be hashes or keys.
  bool as_there = false;
  // All slots of HugeCTR's Norm files are bags. Set by `preprocess`, for all inputs alike.
  bool norm_bags = false;
  std::string split_by;          // column with the time of each row; empty: no times
  std::optional<RowRange> rows;  // the part to read; nullopt: all rows
  // Append values that the dictionaries of dictionaries_of lack and that reach frequency_threshold in these inputs.
  // Other values that they lack have id 1.
  bool grow_dictionaries = false;
  // (column, other) by name: the column uses the table of the other column. With dictionaries_of the sharing of that
  // folder applies, which these pairs must not contradict.
  std::vector<std::pair<std::string, std::string>> shared;
  std::optional<int64_t> max_bag;  // most ids of a bag; longer bags keep their first ids
  double drop_negatives = 0;       // share of samples without a click to drop at random, by `seed`
  uint64_t seed = 1234;
  size_t memory = size_t{1} << 30;  // bytes for the dictionaries of all threads together
};

struct PreprocessProgress {
  int64_t input_bytes = 0;  // size of all inputs
  int64_t bytes_done = 0;
  int64_t samples = 0;
  int tables = 0;
  int tables_done = 0;
};

struct PreprocessResult {
  // Counts for a table of bags.
  struct Bags {
    int table = 0;
    int64_t ids = 0;             // sum over all samples
    int64_t longest_sample = 0;  // the first sample that has ClickFolder::Table::most_ids ids
  };

  ClickFolder folder;
  std::vector<Bags> bags;
  std::vector<int64_t>
      known_rows;  // with grow_dictionaries, per table: rows of the dictionary before it was grown
  std::map<int, UnknownIds> unknown;  // by column, for columns whose dictionary may lack values
  TextReport report;
  int64_t input_bytes = 0;
  int partitioned_tables = 0;  // tables whose dictionary did not fit into memory at once
  double parse_seconds = 0;
  double number_seconds = 0;
};

// Preprocesses all inputs into options.output. BadInput, leaving no files, for contradictory options, an input that is
// missing, has no labels, no valid line or too many malformed lines (the message shows the first ten), inputs of
// different layouts, or an output that exists.
PreprocessResult preprocess(const PreprocessOptions& options, ThreadPool& pool,
                            FunctionRef<void(const PreprocessProgress&)> progress);

}  // namespace trifold
