#include "checkpoint/save_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "checkpoint/files.h"
#include "checkpoint/reader.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_";

// The step of a folder called like a checkpoint; -1 for any other name.
int64_t step_of_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return -1;
  const std::string digits(name.substr(kPrefix.size()));
  if (digits.empty() || digits.size() > 18) return -1;
  if (digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  return std::stoll(digits);
}

// Whether a name is one that only an unfinished save, or removal, leaves.
bool is_remains(const std::string& name) {
  for (const std::string_view mark : {".tmp-", ".trash-"}) {
    const size_t at = name.find(mark);
    if (at == std::string::npos) continue;
    const std::string base = name.substr(0, at);
    if (base == kLatestName || step_of_name(base) >= 0) return true;
  }
  return false;
}

bool is_good(const fs::path& checkpoint) {
  try {
    return CheckpointReader(checkpoint).files_are_complete();
  } catch (const Error&) {
    return false;
  }
}

int open_folder(const fs::path& root) {
  const int folder = ::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  check(folder >= 0, "{} cannot be opened: {}", root.string(), std::strerror(errno));
  return folder;
}

// Takes the lock of an open folder, or closes it and throws.
void take(int folder, const fs::path& root, int how) {
  if (::flock(folder, how | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(folder);
  bad_input("another run saves its checkpoints in {}: end it, or give another --save", root.string());
}

}  // namespace

void check_not_taken(const fs::path& root) {
  const int folder = open_folder(root);
  take(folder, root, LOCK_SH);  // many may look at once
  ::close(folder);
}

SaveFolder::SaveFolder(const fs::path& root) {
  fs::create_directories(root);
  fd_ = open_folder(root);
  take(fd_, root, LOCK_EX);
  for (const auto& entry : fs::directory_iterator(root)) {
    std::error_code ignored;
    if (is_remains(entry.path().filename().string())) fs::remove_all(entry.path(), ignored);
  }
}

SaveFolder::~SaveFolder() { ::close(fd_); }

std::vector<std::pair<int64_t, fs::path>> checkpoints_in(const fs::path& root) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(root, missing)) {
    const int64_t step = step_of_name(entry.path().filename().string());
    if (step >= 0 && entry.is_directory()) found.emplace_back(step, entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

void retire_checkpoints(const fs::path& root, const SaveOptions& options) {
  const int keep = std::max(2, options.retain);
  int good = 0;
  for (const auto& [step, checkpoint] : checkpoints_in(root)) {
    if (good < keep) {
      good += is_good(checkpoint) ? 1 : 0;
      continue;
    }
    const fs::path trash = checkpoint.string() + ".trash-" + random_id();
    fs::rename(checkpoint, trash);
    options.reach(SavePhase::OldMovedAway);
    fs::remove_all(trash);
  }
}

}  // namespace trifold
