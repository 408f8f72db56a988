// open_clicks opens the clicks at a path, in any format.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "clicks/click_samples.h"
#include "clicks/click_source.h"
#include "clicks/click_text.h"
#include "config/fields/recommend_choices.h"

namespace trifold {

// Absent options are taken from the data, or have the default that is noted here. Given options must agree with data
// that define them.
struct ClickFileOptions : ClickSampleOptions {
  std::string format = "auto";      // or one of click_formats()
  std::vector<int64_t> table_rows;  // for each table, or one number for all; required for text and records
  std::vector<int64_t> table_ids;   // ids per sample for each table, or one number for all; default 1
  std::optional<int64_t> dense;     // dense features; default 13 for records
  std::optional<DenseTransform>
      dense_transform;  // default log1p; none for hugectr-raw, whose dense values are not counts
  std::optional<IdPolicy> id_policy;  // default Error
  std::string part = "train";         // for split-binary
};

// "clicks" (preprocessed), "split-binary", "mlperf-bin", "hugectr-raw", "hugectr-raw-counts", "tsv", "csv",
// "csv-hex"
const std::vector<std::string>& click_formats();

// The format of a path: "clicks" or "split-binary" for a folder, by its content; "mlperf-bin" for *.bin; "text", which
// is tsv or csv by its first line, if the name ends in .txt, .tsv or .csv or begins with day_. BadInput if the path
// does not exist or its name does not determine the format.
std::string find_click_format(const std::string& path);

// Whether a format consists of text lines: "tsv", "csv", "csv-hex", or "text", whose first line decides.
bool is_text_format(std::string_view format);

struct OpenClicks {
  std::unique_ptr<ClickSource> source;
  TextReport report;  // malformed lines of text
};

// BadInput, naming the path, for an unknown format, options that contradict the data or have no effect, or a damaged
// file.
OpenClicks open_clicks(const std::string& path, const ClickFileOptions& options);

// BadInput, naming each option that contradicts the clicks at `path`, which have this schema. The dense transform
// "none" agrees with dense values that were transformed already.
void check_agreement(const std::string& path, const ClickFileOptions& options, const ClickSchema& schema);

}  // namespace trifold
