#include "monitor/json_log.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "core/error.h"
#include "core/read_json.h"

namespace trifold {

namespace {

// Removes the incomplete last line that a kill has left, so that every line of the log stays an object.
void cut_last_line(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr uintmax_t kLongest = 1 << 20;
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return;
  const uintmax_t size = fs::file_size(path, ignored);
  const uintmax_t begin = size - std::min(size, kLongest);
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(begin));
  const std::string end(std::istreambuf_iterator<char>(file), {});
  const size_t last = end.rfind('\n');
  const size_t kept = last == std::string::npos ? 0 : last + 1;
  if (kept < end.size() && (kept > 0 || begin == 0)) fs::resize_file(path, begin + kept, ignored);
}

}  // namespace

JsonLog::JsonLog(const std::string& path) : path_(path) {
  cut_last_line(path);
  file_.open(path, std::ios::app);
  if (!file_) bad_input("--log-json {}: the file cannot be opened for writing", path);
}

void JsonLog::write(const RunRecord& record) {
  check(static_cast<bool>(file_ << json_text(object_of(record)) << std::endl),
        "--log-json {}: writing failed; is the disk full?", path_);
}

}  // namespace trifold
