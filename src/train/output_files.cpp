#include "train/output_files.h"

#include <unistd.h>

#include <filesystem>

#include "core/error.h"

namespace trifold {

namespace fs = std::filesystem;

namespace {

bool writable(const fs::path& path) { return access(path.c_str(), W_OK) == 0; }

}  // namespace

void check_writable_file(const std::string& option, const std::string& path) {
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) bad_input("{} {}: that is a folder; name a file", option, path);
  const fs::path folder = fs::absolute(path).parent_path();
  if (!fs::is_directory(folder, ignored))
    bad_input("{} {}: there is no folder {}", option, path, folder.string());
  if (!writable(fs::exists(path, ignored) ? fs::path(path) : folder))
    bad_input("{} {}: it cannot be written", option, path);
}

void check_writable_folder(const std::string& option, const std::string& path) {
  std::error_code ignored;
  // The deepest part of the path that exists decides.
  fs::path there = fs::absolute(path);
  while (!fs::exists(there, ignored) && there.has_relative_path()) there = there.parent_path();
  if (!fs::is_directory(there, ignored))
    bad_input("{} {}: {} is a file; name a folder", option, path, there.string());
  if (!writable(there)) bad_input("{} {}: {} cannot be written to", option, path, there.string());
}

}  // namespace trifold
