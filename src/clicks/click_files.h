// open_clicks: the source of clicks that a path names, whatever its format.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "clicks/click_source.h"
#include "clicks/click_text.h"
#include "config/fields/recommend_choices.h"

namespace trifold {

// Options left out follow from the data. Options that the data define themselves must agree with them.
struct ClickFileOptions {
  std::string format = "auto";      // or one of click_formats()
  std::vector<int64_t> table_rows;  // of each table, or one number for all; text and records need them
  std::vector<int64_t> table_ids;   // ids of a sample in each table, or one number for all; 1
  std::optional<int64_t> dense;     // dense features; of records 13
  std::optional<DenseTransform> dense_transform;  // log1p; none for hugectr-raw, whose numbers are not counts
  std::optional<IdPolicy> id_policy;              // error
  std::string part = "train";                     // of split-binary
  bool needs_labels = true;                       // else text may have none (ClickSchema::labeled)
};

// "clicks" (preprocessed), "split-binary", "mlperf-bin", "hugectr-raw", "hugectr-raw-counts", "tsv", "csv",
// "csv-hex"
const std::vector<std::string>& click_formats();

// The format of a path: "clicks" or "split-binary" for a folder, by what is in it; "mlperf-bin" for *.bin;
// "text", which is tsv or csv by its first line, where the name ends in .txt, .tsv or .csv or begins with
// day_. BadInput where there is no such path, or the format does not follow from its name.
std::string find_click_format(const std::string& path);

// Whether a format is one of text lines: "tsv", "csv", "csv-hex", or "text", whose first line decides.
bool is_text_format(std::string_view format);

struct OpenClicks {
  std::unique_ptr<ClickSource> source;
  TextReport report;  // of malformed lines, for text
};

// BadInput, naming the path, for an unknown format, options that do not agree with the data or have no use,
// or a damaged file.
OpenClicks open_clicks(const std::string& path, const ClickFileOptions& options);

// BadInput that names each option which differs from what the clicks called `path` have by themselves. A
// dense transform "none" agrees with numbers that were transformed before.
void check_agreement(const std::string& path, const ClickFileOptions& options, const ClickSchema& schema);

}  // namespace trifold
