// preprocess_as preprocesses samples for a single run of another command, so that raw files can be trained on,
// evaluated or scored directly. It makes a folder of clicks in the system's folder for temporary files (TMPDIR), maps
// its files and removes it at once: the disk space is released when the source is destroyed or the process ends.
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
  TextReport report;  // rows that did not become samples
};

// The samples of `path`, a file or a folder as for `trifold preprocess`, with the columns, the transform and the ids of
// the folder of clicks `like`. `asked.format` is "auto" or a format of text; `asked.table_rows` applies to tables of
// keys; the options of ClickSampleOptions apply as in preprocess, and BadInput is thrown as by preprocess.
PreprocessedClicks preprocess_as(const std::string& path, const std::string& like,
                                 const ClickFileOptions& asked);

// The hash of each sample's value in `column`, as if --sparse named the column; 0 for a missing value. The samples are
// the same as preprocess_as returns with this `unlabelled`. BadInput as preprocess_as, or if `like` was not made with
// names of columns.
std::vector<uint64_t> preprocess_column(const std::string& path, const std::string& format,
                                        const std::string& like, const std::string& column,
                                        Unlabelled unlabelled);

// Whether `path` names samples that preprocess_as can read: text, Parquet, arrays, or a folder of them.
bool can_preprocess(const std::string& path);

}  // namespace trifold
