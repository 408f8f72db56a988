#include "preprocess/click_scratch.h"

#include <cstdlib>
#include <filesystem>

#include "clicks/click_files.h"
#include "clicks/click_format.h"
#include "clicks/click_input.h"
#include "core/error.h"
#include "core/thread_pool.h"
#include "files/byte_reader.h"
#include "preprocess/click_reader.h"
#include "preprocess/preprocess.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

// A new folder, removed with this object.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::error_code error;
    const fs::path where = fs::temp_directory_path(error);
    path_ = (where / "trifold_XXXXXX").string();
    if (error || mkdtemp(path_.data()) == nullptr)
      bad_input(
          "{}: no folder for preprocessed samples can be created there: set TMPDIR to a writable folder",
          where.string());
  }
  ~ScratchFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string file(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace

PreprocessedClicks preprocess_as(const std::string& path, const std::string& format, const std::string& like,
                                 bool needs_labels, const std::vector<int64_t>& rows) {
  const ScratchFolder scratch;
  PreprocessOptions options;
  options.inputs = {path};
  options.output = scratch.file("clicks");
  options.format = format;
  options.dictionaries_of = like;
  options.as_there = true;
  options.needs_labels = needs_labels;
  options.max_malformed = 1;
  ThreadPool pool(available_cores());
  const PreprocessResult result = preprocess(options, pool, [](const PreprocessProgress&) {});
  return {open_click_folder(options.output, rows), result.report};
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
  return fs::exists(path, ignored) && !path.ends_with(".bin");
}

}  // namespace trifold
