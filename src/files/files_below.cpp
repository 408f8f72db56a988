#include "files/files_below.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <system_error>

#include "core/error.h"
#include "core/printable.h"

namespace trifold {

namespace fs = std::filesystem;

std::vector<fs::path> files_below(const std::string& folder,
                                  FunctionRef<void(const fs::path&)> on_folder_link) {
  std::vector<fs::path> found;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, error);
  fs::path last = folder;  // an error of increment() is that of the folder that it would enter
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    last = at->path();
    const bool hidden = at->path().filename().string().starts_with('.');
    if (hidden) {
      at.disable_recursion_pending();
      continue;
    }
    // A file that has vanished, or a dangling link, is skipped; other errors are reported below.
    std::error_code unknown;
    if (at->is_symlink(unknown) && at->is_directory(unknown)) on_folder_link(at->path());
    if (at->is_regular_file(unknown)) found.push_back(at->path());
  }
  if (error) {
    std::error_code unknown;
    const std::string where = fs::is_directory(last, unknown) ? last.string() : folder;
    bad_input("{}: the folder cannot be read: {}", where, error.message());
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::string list_of_names(const std::vector<std::string>& names) {
  constexpr size_t kMostShown = 8;
  const std::span<const std::string> shown(names.data(), std::min(names.size(), kMostShown));
  std::string text = printable(fmt::format("{}", fmt::join(shown, ", ")), 400);
  if (names.size() > kMostShown) text += fmt::format(" and {} more", names.size() - kMostShown);
  return text;
}

}  // namespace trifold
