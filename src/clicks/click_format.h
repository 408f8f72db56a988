// Preprocessed clicks: a folder that `trifold preprocess` writes.
//
//   clicks.json    content and origin: the schema below, and the sources
//   labels.bin     one byte per sample, 0 or 1, or 255: missing; with several labels a byte for each of them
//   weights.bin    where samples have weights: f32, one per sample
//   dense.bin      f32 [samples, dense], transformed
//   C1.ids ...     for each table: one unsigned id per sample, in 1, 2 or 4 bytes as its rows require, or where ids are
//                  keys the hash itself, 0 for a missing value, in 4 or 8 bytes; of a
//                  table of bags the ids of each sample, one bag after the other
//   C1.ends ...    for each table of bags: per sample the number of ids up to and including it, u64
//   C1.weights ... for each table of bags whose ids have weights: f32, one per id
//   C1.unknown ... for each table whose ids come from a dictionary that was made for other data, and lacks some of these:
//                  the hashes of the values with id 1, in the order of the ids, u64
//   C1.dict ...    where ids come from a dictionary of the table's own: the hash of id 2, 3, ... (ids 0 and 1: see
//                  preprocess/ids/number_ids.h), unsigned, in 4 bytes, or in 8 where one of them needs more
//
//   user.kept ...  for each column that is kept: its texts, one after the other, UTF-8 as in the input
//   user.kept_ends for each of these: per sample the number of bytes up to and including its text, u64
//
// A dictionary that was grown from an older one begins with it, so that its ids keep their meaning; clicks.json lists
// the older ones with their rows.
//
// All numbers are little-endian. Each column has its own file, so a rank may read only its tables. The folder gets its
// name once it is complete. clicks.json has version 8 if samples have weights or no label, or columns are kept, 7 if
// tables are shared, 6 if ids are keys, 5 if samples have
// several labels, 4 if ids have weights, 3 if there are bags, 2 if a dictionary has hashes of 8 bytes, else 1; earlier
// programs reject versions that they do not know.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clicks/click_columns.h"
#include "clicks/click_text.h"
#include "clicks/column_map.h"

namespace trifold {

struct ClickFolder {
  static constexpr int64_t kMostBagIds = 1 << 20;  // of a sample, in a table of bags

  struct Table {
    std::string name;
    int64_t rows = 0;
    int id_bytes = 4;
    bool bag = false;          // any number of ids per sample, else one
    bool weighted = false;     // for a table of bags: ids have weights
    int64_t most_ids = 1;      // of a sample
    int64_t cut_bags = 0;      // number of bags that had more than max_bag
    int dictionary_bytes = 4;  // of a hash in the dictionary: 4 or 8
    bool dictionary = true;    // else ids are hashes modulo the rows,
    bool keys = false;         // or as they are, and the table has as many rows as a run gives it
    std::optional<uint32_t> dictionary_crc;     // of the dictionary's file; absent in older folders
    std::vector<ClickTable::Older> grown_from;  // see ClickTable
    std::optional<int64_t> unknown_values;      // of unknown_file; absent: it was not written
    std::string shares = {};  // the table whose ids and dictionary these are; empty: its own
  };
  struct Source {
    std::string file;
    int64_t lines = 0;
    int64_t malformed = 0;
    int64_t samples = 0;  // accepted lines
  };

  // Where samples have several.
  struct Label {
    std::string name;
    int64_t clicks = 0;   // samples in which it is 1
    int64_t missing = 0;  // samples that lack it
  };

  int64_t samples = 0;
  int64_t clicks = 0;  // samples whose label is 1, or one of whose labels is
  std::vector<Label> labels;
  bool labeled = true;     // else the inputs had no labels, and all are 0
  int64_t unlabelled = 0;  // samples without any label
  bool sample_weights = false;
  std::vector<std::string> kept;  // columns whose texts are kept
  int dense = 0;
  DenseTransform transform = DenseTransform::Log1p;
  double least = 0;                   // m of LogMin
  IdBase base = IdBase::Hexadecimal;  // of the text's ids; absent in older folders
  uint64_t hash_seed = 0;             // for IdBase::Text
  int64_t max_ind_range = 0;          // hashes were reduced modulo this before the dictionary; 0: unchanged
  int64_t frequency_threshold = 1;    // occurrences that a value needed for an id of its own
  std::optional<int64_t> max_bag;     // most ids of a bag; only the first ones of longer bags were kept
  double drop_negatives = 0;          // share of samples without a click that were dropped
  double max_malformed = kMaxMalformed;  // share of malformed lines that was allowed
  bool texts_as_written = false;         // FieldRules::as_written; true for folders that do not record it
  std::optional<NamedColumns> columns;   // if options named them; absent in older folders
  std::vector<Table> tables;
  std::vector<Source> sources;

  static std::string manifest(const std::string& folder) { return folder + "/clicks.json"; }
  static std::string labels_file(const std::string& folder) { return folder + "/labels.bin"; }
  static std::string dense_file(const std::string& folder) { return folder + "/dense.bin"; }
  static std::string sample_weights_file(const std::string& folder) { return folder + "/weights.bin"; }
  // `column` of `kept`.
  static std::string kept_file(const std::string& folder, const std::string& column);
  static std::string kept_ends_file(const std::string& folder, const std::string& column);
  std::string ids_file(const std::string& folder, int table) const;
  std::string ends_file(const std::string& folder, int table) const;
  std::string weights_file(const std::string& folder, int table) const;
  std::string unknown_file(const std::string& folder, int table) const;
  // Columns that share a table have its dictionary file.
  std::string dictionary_file(const std::string& folder, int table) const;
  // CRC-32 of a table's dictionary file.
  uint32_t dictionary_checksum(const std::string& folder, int table) const;
  // ClickTable::mapping of a table of this folder.
  std::string mapping(const std::string& folder, int table) const;
};

void write_click_folder(const ClickFolder& clicks, const std::string& folder);
// BadInput, naming the file and the key, for a manifest that is missing or damaged.
ClickFolder read_click_folder(const std::string& folder);
// BadInput, naming the file, for a dictionary that is missing, or whose size or checksum differs from clicks.json.
void check_dictionaries(const ClickFolder& clicks, const std::string& folder);
struct SampleUse {
  bool weights = true;            // else samples come without their weights
  bool missing_negative = false;  // a label that is missing is 0
};

// The samples of a folder.
// `rows`: for each table, or one number for all, its rows if its ids are keys.
std::unique_ptr<ColumnClicks> open_click_folder(const std::string& folder,
                                                const std::vector<int64_t>& rows = {},
                                                const SampleUse& use = {});

}  // namespace trifold
