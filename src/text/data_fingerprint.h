// DataFingerprint identifies a run's data, so that a resumed run or a rank with different data is detected. It is short
// enough to be stored in every checkpoint and sent between ranks.
//
// For each file it has the size and a CRC-32 of sampled content: all of a small file, or blocks of kBlock bytes of a
// larger one (the first, the last and some evenly spaced between). At most kMostBlocks blocks are read in total, so
// terabytes take as long as 64 MiB; a change that misses every block and keeps the size goes unnoticed. With more than
// kMostSampled files only every n-th is sampled, the others contribute their sizes; more than kMostParts files are
// listed in groups of neighbours.
//
// Paths, names and modification times do not matter, so data may be moved; the order of the files does. Names are kept
// for messages.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "config/fields/recommend_config.h"

namespace trifold {

struct DataPart {
  std::string name;   // path of the file, or of the first file of a group
  int64_t files = 1;  // files in this part; 0: synthetic data
  int64_t bytes = 0;  // bytes of all its files
  uint32_t crc = 0;   // CRC of the sampled content; for a group of the sizes too
};

struct DataFingerprint {
  static constexpr int64_t kBlock = 16 * 1024;  // bytes
  static constexpr int64_t kMostBlocks = 4096;
  static constexpr int64_t kMostBlocksOfFile = 64;
  static constexpr int64_t kMostSampled = 1024;
  static constexpr int64_t kMostParts = 512;

  std::vector<DataPart> parts;
};

// Each path is a file, a prefix of .bin/.idx files (text/indexed_dataset.h), or a folder with all files below it except
// empty and hidden ones. BadInput for a path that cannot be read.
DataFingerprint fingerprint_of_paths(std::span<const std::string> paths);

// The files of --data-path or --arrays, and the tokenizer's files if some of the data are text.
DataFingerprint fingerprint_of(const DataConfig& config);
// The clicks to train on; for synthetic clicks the options that define them.
DataFingerprint fingerprint_of(const ClickDataConfig& config, uint64_t seed);

// The first part that differs, with both values, for a message. Empty if nothing differs.
std::string difference(const DataFingerprint& before, const DataFingerprint& now);

nlohmann::json to_json(const DataFingerprint& data);
// BadInput for a value of another form.
DataFingerprint fingerprint_from_json(const nlohmann::json& value);

}  // namespace trifold
