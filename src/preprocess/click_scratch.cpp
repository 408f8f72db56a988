#include "preprocess/click_scratch.h"

#include <filesystem>

#include "clicks/click_files.h"
#include "clicks/click_format.h"
#include "clicks/click_input.h"
#include "core/error.h"
#include "core/suffix.h"
#include "core/thread_pool.h"
#include "files/byte_reader.h"
#include "files/scratch_folder.h"
#include "preprocess/click_reader.h"
#include "preprocess/preprocess.h"

namespace trifold {

namespace fs = std::filesystem;

namespace {

PreprocessOptions options_for(const std::string& path, const std::string& format,
                              const ScratchFolder& scratch) {
  PreprocessOptions options;
  options.inputs = {path};
  options.output = scratch.file("clicks").string();
  options.format = format;
  options.max_malformed = 1;
  return options;
}

PreprocessResult preprocess_all(const PreprocessOptions& options) {
  ThreadPool pool(available_cores());
  return preprocess(options, pool, [](const PreprocessProgress&) {});
}

}  // namespace

PreprocessedClicks preprocess_as(const std::string& path, const std::string& like,
                                 const ClickFileOptions& asked) {
  const ScratchFolder scratch = ScratchFolder::temporary();
  PreprocessOptions options = options_for(path, asked.format, scratch);
  options.dictionaries_of = like;
  options.as_there = true;
  static_cast<ClickSampleOptions&>(options) = asked;
  const PreprocessResult result = preprocess_all(options);
  return {open_click_folder(options.output, asked.table_rows, {.weights = asked.with_weights}),
          result.report};
}

// Reads one column of keys; the other columns of the folder `like` determine which lines are samples.
std::vector<uint64_t> preprocess_column(const std::string& path, const std::string& format,
                                        const std::string& like, const std::string& column,
                                        Unlabelled unlabelled) {
  const ClickFolder given = read_click_folder(like);
  if (!given.columns)
    bad_input("{}: the columns of {} have no names by which {} could be one of them", path, like, column);
  const ScratchFolder scratch = ScratchFolder::temporary();
  PreprocessOptions options = options_for(path, format, scratch);
  options.columns = given.columns;
  options.columns->sparse.push_back(column);
  options.keep_keys = true;
  options.unlabelled = unlabelled;
  options.needs_labels = false;
  options.max_bag = given.max_bag;
  preprocess_all(options);
  const std::unique_ptr<ColumnClicks> clicks = open_click_folder(options.output, {ClickTable::kMaxRows});
  for (int t = 0; t < clicks->schema().table_count(); ++t)
    if (clicks->schema().table(t).name == table_name_of(column)) return clicks->first_values(t).of_samples;
  fail("{}: no table was made of column {}", path, column);
}

bool can_preprocess(const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored))
    return !fs::exists(ClickFolder::manifest(path), ignored) &&
           !fs::exists(path + "/feature_spec.yaml", ignored);
  if (is_parquet_input(path) || is_array_input(path) || is_norm_file(path) ||
      packing_of(path) != Packing::None)
    return true;
  // Any other name may be that of a text, as adult.test is.
  return fs::exists(path, ignored) && !has_suffix(path, ".bin");
}

}  // namespace trifold
