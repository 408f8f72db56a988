// DataFingerprint identifies a run's data, short enough for every checkpoint and for messages between ranks,
// so that a run that resumes with other data, or a rank that has other data, is detected.
//
// Of each file it has the size and a CRC-32 of sampled content: all of a small file; of a larger one blocks
// of kBlock bytes, the first, the last and some evenly spaced between. No more than kMostBlocks blocks are
// read in all, so terabytes take as long as 64 MiB: a change that misses every block and keeps the size goes
// unnoticed. Of more than kMostSampled files only every n-th is sampled, and the others count with their
// sizes; more than kMostParts files are listed in groups of neighbours.
//
// Paths, names and times of change do not matter, so data may be moved; the order of the files does. Names
// are kept for messages.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "config/fields/recommend_config.h"

namespace trifold {

struct DataPart {
  std::string name;   // path of the file, or of the first of a group
  int64_t files = 1;  // in this part; 0: no file, but data that are made up
  int64_t bytes = 0;  // of all of them
  uint32_t crc = 0;   // of what was sampled; in a group, of the sizes too
};

struct DataFingerprint {
  static constexpr int64_t kBlock = 16 * 1024;  // bytes
  static constexpr int64_t kMostBlocks = 4096;
  static constexpr int64_t kMostBlocksOfFile = 64;
  static constexpr int64_t kMostSampled = 1024;
  static constexpr int64_t kMostParts = 512;

  std::vector<DataPart> parts;
};

// Each path is a file, a prefix of .bin/.idx files (text/indexed_dataset.h), or a folder, of which all files
// below it are taken but empty ones and those whose name begins with a point. BadInput for one that cannot be
// read.
DataFingerprint fingerprint_of_paths(std::span<const std::string> paths);

// The files of --data-path, and the tokenizer's where some of them are text.
DataFingerprint fingerprint_of(const DataConfig& config);
// The clicks to train on; of synthetic ones the options that make them.
DataFingerprint fingerprint_of(const ClickDataConfig& config, uint64_t seed);

// The difference, for a message: the first part that differs, with both values. Empty if nothing differs.
std::string difference(const DataFingerprint& before, const DataFingerprint& now);

nlohmann::json to_json(const DataFingerprint& data);
// BadInput for a value of another form.
DataFingerprint fingerprint_from_json(const nlohmann::json& value);

}  // namespace trifold
