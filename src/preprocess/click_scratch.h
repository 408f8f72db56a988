// preprocess_as preprocesses samples for one run of another command, so that a file that has just arrived can be
// trained on, evaluated or scored as it is. It makes a folder of clicks in the system's folder for temporary files
// (TMPDIR), maps its files and removes it at once: the space is free again when the source is destroyed, or the
// process ends.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clicks/click_files.h"
#include "clicks/click_source.h"
#include "clicks/click_text.h"

namespace trifold {

struct PreprocessedClicks {
  std::unique_ptr<ClickSource> source;
  TextReport report;  // of rows that are no samples
};

// The samples of `path`, a file or a folder as for `trifold preprocess`, with the columns, the transform and the ids of
// the folder of clicks `like`. Of `asked`: `format` is "auto", or a format of text, and `table_rows` are those of
// keys; labels, weights, columns to keep and the share of malformed lines are as there. BadInput as preprocess throws it.
PreprocessedClicks preprocess_as(const std::string& path, const std::string& like,
                                 const ClickFileOptions& asked);

// The hashes of a column of the same samples (`unlabelled` as there), as --sparse would read it; 0 for a missing value. BadInput as above, or if
// `like` was not made with names of columns.
std::vector<uint64_t> preprocess_column(const std::string& path, const std::string& format,
                                        const std::string& like, const std::string& column,
                                        Unlabelled unlabelled);

// Whether `path` names samples that preprocess_as can read: text, Parquet, arrays, or a folder of them.
bool can_preprocess(const std::string& path);

}  // namespace trifold
