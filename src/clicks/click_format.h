// Preprocessed clicks: a folder that `trifold preprocess` writes.
//
//   clicks.json    what is in it and how it was made: the schema below, and the sources
//   labels.bin     one byte a sample, 0 or 1
//   dense.bin      f32 [samples, dense], transformed
//   C1.ids ...     for each table: one id a sample, unsigned, in 1, 2 or 4 bytes, whichever hold its rows; of a
//                  table of bags the ids of each sample, one bag after the other
//   C1.ends ...    for each table of bags: how many ids the samples up to and with this one have, u64
//   C1.dict ...    where ids come from a dictionary: the hash of id 2, 3, ... (ids 0 and 1: see
//                  preprocess/number_ids.h), unsigned, in 4 bytes, or in 8 where one of them needs more
//
// All numbers are little-endian. Columns lie in files of their own, so a rank may read only its tables. The
// folder gets its name when it is complete. clicks.json has version 3 where there are bags, 2 where a dictionary
// has hashes of 8 bytes, else 1: earlier programs do not read these.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clicks/click_columns.h"
#include "clicks/click_text.h"

namespace trifold {

struct ClickFolder {
  struct Table {
    std::string name;
    int64_t rows = 0;
    int id_bytes = 4;
    bool bag = false;                        // any number of ids a sample, else one
    int64_t most_ids = 1;                    // of a sample
    int dictionary_bytes = 4;                // of a hash in it: 4 or 8
    bool dictionary = true;                  // else ids are hashes modulo the rows
    std::optional<uint32_t> dictionary_crc;  // of the dictionary's file; older folders do not say it
  };
  struct Source {
    std::string file;
    int64_t lines = 0;
    int64_t malformed = 0;
    int64_t samples = 0;  // lines that were taken
  };

  int64_t samples = 0;
  int64_t clicks = 0;  // samples whose label is 1
  int dense = 0;
  DenseTransform transform = DenseTransform::Log1p;
  double least = 0;                   // m of LogMin
  IdBase base = IdBase::Hexadecimal;  // of the text's ids; older folders do not say it
  uint64_t hash_seed = 0;             // of IdBase::Text
  int64_t max_ind_range = 0;          // hashes were taken modulo it before the dictionary; 0: as they are
  int64_t frequency_threshold = 1;    // times a value was seen at least to get an id of its own
  double drop_negatives = 0;          // share of the samples without a click that was left out
  std::vector<Table> tables;
  std::vector<Source> sources;

  static std::string manifest(const std::string& folder) { return folder + "/clicks.json"; }
  static std::string labels_file(const std::string& folder) { return folder + "/labels.bin"; }
  static std::string dense_file(const std::string& folder) { return folder + "/dense.bin"; }
  std::string ids_file(const std::string& folder, int table) const;
  std::string ends_file(const std::string& folder, int table) const;
  std::string dictionary_file(const std::string& folder, int table) const;
  // CRC-32 of that file.
  uint32_t dictionary_checksum(const std::string& folder, int table) const;
  // ClickTable::mapping of a table of this folder.
  std::string mapping(const std::string& folder, int table) const;
};

void write_click_folder(const ClickFolder& clicks, const std::string& folder);
// BadInput, naming the file and the key, for a manifest that is missing or damaged.
ClickFolder read_click_folder(const std::string& folder);
// BadInput, naming the file, for a dictionary of the folder that is missing, or has another size or checksum
// than clicks.json says.
void check_dictionaries(const ClickFolder& clicks, const std::string& folder);
// The samples of a folder.
std::unique_ptr<ColumnClicks> open_click_folder(const std::string& folder);

}  // namespace trifold
