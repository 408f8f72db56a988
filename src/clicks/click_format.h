// Preprocessed clicks: a folder that `trifold preprocess` writes.
//
//   clicks.json    content and origin: the schema below, and the sources
//   labels.bin     one byte per label of each sample: 0, 1, or 255 if it is missing
//   weights.bin    if samples have weights: f32 [samples]
//   dense.bin      f32 [samples, dense], transformed
//   C1.ids ...     for each table: one unsigned id per sample, in 1, 2 or 4 bytes as its rows require. If ids are keys:
//                  the hash itself, 0 for a missing value, in 4 or 8 bytes. For a table of bags: the ids of all
//                  samples, bag after bag
//   C1.ends ...    for each table of bags: u64 [samples], the number of ids up to and including the sample
//   C1.weights ... for each table of bags whose ids have weights: f32, one per id
//   C1.unknown ... for each table whose dictionary was made for other data and lacks values of these: u64, for each id
//                  1, in order, the hash of its value
//   C1.dict ...    for each table with its own dictionary: the hashes of ids 2, 3, ... (ids 0 and 1: see
//                  preprocess/ids/number_ids.h), unsigned, in 4 bytes, or in 8 if one of them needs more
//
//   user.kept ...  for each column whose texts are kept: the texts, back to back, UTF-8 as in the input
//   user.kept_ends ... for each of these: u64 [samples], the number of bytes up to and including the sample's text
//
// A dictionary that was grown from an older one begins with it, so that its ids keep their meaning; clicks.json lists
// the older ones with their rows.
//
// Integers and floats are little-endian. Each column has its own file, so a rank may read only its tables. The folder
// gets its name once it is complete. The version in clicks.json is the lowest that describes the folder, so that
// earlier programs, which reject versions that they do not know, read what they can: 8 if samples have weights or no
// label, or columns are kept; 7 if tables are shared; 6 if ids are keys; 5 if samples have several labels; 4 if ids
// have weights; 3 if there are bags; 2 if a dictionary has hashes of 8 bytes; else 1.
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
  static constexpr int64_t kMostBagIds = 1 << 20;  // largest bag

  struct Table {
    std::string name;
    int64_t rows = 0;
    int id_bytes = 4;
    bool bag = false;          // any number of ids per sample, else one
    bool weighted = false;     // for a table of bags: ids have weights
    int64_t most_ids = 1;      // ids of the largest bag
    int64_t cut_bags = 0;      // bags that had more than max_bag ids
    int dictionary_bytes = 4;  // bytes per hash in the dictionary: 4 or 8
    bool dictionary = true;    // ids come from a dictionary; else they are hashes modulo the rows,
    bool keys = false;         // or keys: the hashes themselves; a run chooses the rows
    std::optional<uint32_t> dictionary_crc;     // CRC-32 of the dictionary's file; absent in older folders
    std::vector<ClickTable::Older> grown_from;  // see ClickTable
    std::optional<int64_t> unknown_values;      // entries of unknown_file; absent: it was not written
    std::string shares = {};                    // the table whose rows and dictionary it uses; empty: its own
  };
  struct Source {
    std::string file;
    int64_t lines = 0;
    int64_t malformed = 0;
    int64_t samples = 0;  // accepted lines
  };

  // One label of a data set with several.
  struct Label {
    std::string name;
    int64_t clicks = 0;   // samples in which it is 1
    int64_t missing = 0;  // samples that lack it
  };

  int64_t samples = 0;
  int64_t clicks = 0;  // samples whose label is 1, or one of whose labels is
  std::vector<Label> labels;
  bool labeled = true;     // false: the inputs had no labels, and all are 0
  int64_t unlabelled = 0;  // samples without any label
  bool sample_weights = false;
  std::vector<std::string> kept;  // columns whose texts are kept
  int dense = 0;
  DenseTransform transform = DenseTransform::Log1p;
  double least = 0;                   // m of LogMin
  IdBase base = IdBase::Hexadecimal;  // how ids are written in text; absent in older folders
  uint64_t hash_seed = 0;             // for IdBase::Text
  int64_t max_ind_range = 0;          // hashes were reduced modulo this before the dictionary; 0: unchanged
  int64_t frequency_threshold = 1;    // occurrences that a value needed to get its own id
  std::optional<int64_t> max_bag;     // most ids of a bag; longer bags kept their first ids
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
  // Files for `column`, one of `kept`.
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
  bool weights = true;            // false: samples are read without their weights
  bool missing_negative = false;  // a missing label counts as 0
};

// Opens the samples of a folder. `rows`: for tables of keys, the rows of each table, or one number for all.
std::unique_ptr<ColumnClicks> open_click_folder(const std::string& folder,
                                                const std::vector<int64_t>& rows = {},
                                                const SampleUse& use = {});

}  // namespace trifold
