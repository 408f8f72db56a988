// `trifold preprocess`: converts text or arrays of clicks (preprocess/click_reader.h) to the columns of
// clicks/click_format.h.
//
// Two passes. The first parses the text in pieces, one per core, and writes labels, transformed dense numbers and, in
// temporary files, the hashes of each table. The second turns the hashes of each table into ids
// (preprocess/ids/number_ids.h), several tables at a time. The result depends neither on the number of threads nor on the
// memory limit, and memory does not grow with the input.
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

// The rows of a part of the input: those whose time is in [first, end), in seconds since 1970, or, without times, for
// which a number from 0 to 1 is drawn that is.
struct RowRange {
  double first, end;
};

struct PreprocessOptions : ClickSampleOptions {
  std::vector<std::string> inputs;  // files, or folders of them (clicks/click_input.h), one after the other
  std::string output;               // folder to create; it must not exist
  std::string format = "auto";      // see find_layout
  std::optional<NamedColumns> columns;  // the same
  DenseTransform transform = DenseTransform::Log1p;
  // Hashes are taken modulo this before anything else; 0: unchanged.
  int64_t max_ind_range = 0;
  bool hash_ids = false;            // ids are hashes modulo max_ind_range: no dictionary
  bool keep_keys = false;           // ids are the hashes
  int64_t frequency_threshold = 1;  // occurrences that a value needs for an id of its own
  // Folder whose dictionaries, m of LogMin and, unless `columns` or a format are given, named columns are reused.
  std::optional<std::string> dictionaries_of;
  // Take hash_ids, keep_keys, max_ind_range, max_bag and the transform from that folder, whose ids may then be hashes
  // or keys too.
  bool as_there = false;
  // All slots of HugeCTR's Norm files are bags. `preprocess` decides it for all inputs.
  bool norm_bags = false;
  std::string split_by;          // column of the times of rows; empty: they have none
  std::optional<RowRange> rows;  // all
  // Values that are not in them and reach the threshold in these inputs get ids after theirs; else all have id 1.
  bool grow_dictionaries = false;
  // Columns that have the table of another one, each with that one, by name; with dictionaries_of those of that folder.
  std::vector<std::pair<std::string, std::string>> shared;
  std::optional<int64_t> max_bag;  // of a longer bag only this many ids, the first ones, are kept
  double drop_negatives = 0;       // share of samples without a click to drop, chosen by the seed
  uint64_t seed = 1234;
  size_t memory = size_t{1} << 30;  // bytes for dictionaries, of all threads together
};

struct PreprocessProgress {
  int64_t input_bytes = 0;  // of all files
  int64_t bytes_done = 0;
  int64_t samples = 0;
  int tables = 0;
  int tables_done = 0;
};

struct PreprocessResult {
  // Counts of a table of bags.
  struct Bags {
    int table = 0;
    int64_t ids = 0;             // of all samples
    int64_t longest_sample = 0;  // the first that has ClickFolder::Table::most_ids
  };

  ClickFolder folder;
  std::vector<Bags> bags;
  std::vector<int64_t>
      known_rows;  // with grow_dictionaries: of each table, rows of the dictionary that was grown
  std::map<int, UnknownIds> unknown;  // of each column whose dictionary may lack values
  TextReport report;
  int64_t input_bytes = 0;
  int partitioned_tables = 0;  // tables whose dictionary did not fit into memory at once
  double parse_seconds = 0;
  double number_seconds = 0;
};

// BadInput, leaving no files, for contradictory options, an input that is missing, has no labels, no valid line or too
// many malformed ones (the message shows the first ten), inputs of different layouts, or an output that exists.
PreprocessResult preprocess(const PreprocessOptions& options, ThreadPool& pool,
                            FunctionRef<void(const PreprocessProgress&)> progress);

}  // namespace trifold
