// open_clicks: the source of clicks that a path names, whatever its format.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/click_source.h"
#include "data/click_text.h"

namespace trifold {

struct ClickFileOptions {
  // "auto": preprocessed or split-binary for a folder, by what is in it; mlperf-bin for *.bin; else text
  // where the name ends in .txt, .tsv or .csv, or begins with day_. Or one of click_formats().
  std::string format = "auto";
  // Rows of each table, or one number for all; not for preprocessed and split-binary, which know theirs.
  std::vector<int64_t> table_rows;
  std::vector<int64_t> table_ids;              // ids of a sample in each table, for hugectr-raw; empty: 1
  int dense = 13;                              // dense numbers, for mlperf-bin and hugectr-raw
  std::optional<std::string> dense_transform;  // the format's: log1p where numbers are counts
  std::optional<std::string> id_policy;        // error; modulo for text, whose ids are hashes
  std::string part = "train";                  // of split-binary
};

// "preprocessed", "split-binary", "mlperf-bin", "hugectr-raw", "hugectr-raw-counts", "text"
const std::vector<std::string>& click_formats();

struct OpenClicks {
  std::unique_ptr<ClickSource> source;
  TextReport report;  // of malformed lines, for text
};

// BadInput, naming the path, for an unknown format, options that the format has no use for, or a damaged
// file.
OpenClicks open_clicks(const std::string& path, const ClickFileOptions& options);

}  // namespace trifold
