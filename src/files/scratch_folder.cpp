#include "files/scratch_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>  // renameat2
#include <cstring>
#include <mutex>
#include <set>
#include <utility>

#include "core/error.h"
#include "files/file.h"

namespace trifold {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kInfix = ".tmp-";
constexpr size_t kDigits = 16;

// The scratch folders of this process. Never destroyed, because a signal may come while static objects are destroyed.
struct LiveFolders {
  std::mutex mutex;
  std::set<fs::path> paths;
  std::atomic<int> count{0};
};

LiveFolders& live() {
  static auto* const kFolders = new LiveFolders;
  return *kFolders;
}

// The prefix of the names of scratch folders for `target`.
std::string name_beside(const std::string& target) {
  return target.substr(0, NAME_MAX - kInfix.size() - kDigits) + std::string(kInfix);
}

bool is_scratch_name(std::string_view name, std::string_view target) {
  if (name.size() < kInfix.size() + kDigits) return false;
  const std::string_view begin = name.substr(0, name.size() - kDigits);
  if (name.substr(begin.size()).find_first_not_of("0123456789abcdef") != std::string_view::npos) return false;
  return target.empty() ? begin.ends_with(kInfix) : begin == name_beside(std::string(target));
}

enum class LockState { Held, Busy, Unsupported };

LockState try_lock(int file) {
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) return LockState::Held;
  return errno == EWOULDBLOCK || errno == EINTR ? LockState::Busy : LockState::Unsupported;
}

// Whether the path still leads to the open file.
bool is_in_place(int file, const fs::path& path) {
  struct stat held {};
  struct stat found {};
  return ::fstat(file, &held) == 0 && ::lstat(path.c_str(), &found) == 0 && held.st_dev == found.st_dev &&
         held.st_ino == found.st_ino;
}

// Empties the folder, its mark last, and removes it; returns the first error. A kill leaves a folder with its mark, or
// an empty one.
std::error_code remove_marked(const fs::path& folder) {
  std::error_code first;
  const auto note = [&](const std::error_code& error) {
    if (!first) first = error;
  };
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().filename() != kScratchMark) entries.push_back(entry->path());
  note(error);
  for (const fs::path& entry : entries) {
    fs::remove_all(entry, error);
    note(error);
  }
  if (first) return first;
  fs::remove(folder / kScratchMark, error);
  note(error);
  fs::remove(folder, error);
  note(error);
  return first;
}

// Removes a folder that has the name of a scratch folder, if it is one and no process uses it. Returns the error.
std::error_code remove_if_abandoned(const fs::path& folder, bool alone) {
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != ::geteuid())
    return {};
  const int mark = ::open((folder / kScratchMark).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (mark < 0) {
    if (errno == ENOENT) ::rmdir(folder.c_str());  // succeeds if it is empty: its maker was killed at once
    return {};
  }
  const LockState state = try_lock(mark);
  std::error_code error;
  if (state == LockState::Held || (state == LockState::Unsupported && alone)) error = remove_marked(folder);
  ::close(mark);
  return error;
}

}  // namespace

std::vector<std::string> remove_abandoned_scratch(const fs::path& folder, const std::string& target,
                                                  bool alone) {
  std::vector<fs::path> found;
  std::error_code error;  // the folder may be missing, unreadable, or change meanwhile
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    if (is_scratch_name(entry->path().filename().native(), target)) found.push_back(entry->path());
  std::vector<std::string> problems;
  for (const fs::path& path : found)
    if (const std::error_code problem = remove_if_abandoned(path, alone))
      problems.push_back(fmt::format("{}, which an interrupted command left, cannot be removed: {}",
                                     path.string(), problem.message()));
  return problems;
}

ScratchFolder::ScratchFolder(const fs::path& target) {
  const fs::path place = target.has_filename() ? target : target.parent_path();
  const fs::path parent = place.parent_path();
  const std::string name = place.filename().string();
  remove_abandoned_scratch(parent.empty() ? "." : parent, name);
  constexpr int kTries = 100;
  ++live().count;  // before the folder exists, so that a signal leaves its removal to remove_live_scratch()
  const std::lock_guard lock(live().mutex);
  try {
    for (int tries = 0; !make(parent / name_beside(name)); ++tries)
      check(tries < kTries, "{}: another process removes each new folder there", parent.string());
  } catch (...) {
    --live().count;
    throw;
  }
  live().paths.insert(path_);
}

bool ScratchFolder::make(const fs::path& begin) {
  path_ = begin.string() + random_id();
  const bool made = ::mkdir(path_.c_str(), 0700) == 0;
  check(made, "{} cannot be created: {}", path_.string(), std::strerror(errno));
  lock_ = ::open(file(kScratchMark).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  const int error = lock_ < 0 ? errno : 0;
  if (lock_ >= 0 && try_lock(lock_) != LockState::Busy && is_in_place(lock_, file(kScratchMark))) return true;
  if (lock_ >= 0) ::close(std::exchange(lock_, -1));
  ::rmdir(path_.c_str());
  check(error == 0 || error == ENOENT, "{} cannot be written: {}", path_.string(), std::strerror(error));
  return false;
}

ScratchFolder ScratchFolder::temporary() {
  std::error_code error;
  const fs::path where = fs::temp_directory_path(error);
  if (error) bad_input("TMPDIR does not name a folder for temporary files: {}", error.message());
  try {
    return ScratchFolder(where / "trifold");
  } catch (const Error& problem) {
    bad_input("{}: set TMPDIR to a writable folder for temporary files", problem.what());
  }
}

ScratchFolder::~ScratchFolder() { remove(); }

std::error_code ScratchFolder::remove() {
  if (lock_ < 0) return {};
  const std::lock_guard lock(live().mutex);
  const std::error_code error = remove_marked(path_);
  live().paths.erase(path_);
  --live().count;
  ::close(std::exchange(lock_, -1));
  return error;
}

void ScratchFolder::protect(FunctionRef<void()> rename) {
  const std::lock_guard lock(live().mutex);
  rename();
}

void ScratchFolder::move_out(std::string_view name, const fs::path& target) const {
  const fs::path from = file(name);
  protect([&] {
    std::error_code ignored;
    if (fs::is_directory(from, ignored) && fs::is_directory(target, ignored) && fs::is_empty(target, ignored))
      return fs::rename(from, target);
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) == 0) return;
    const bool unknown = errno == EINVAL || errno == ENOSYS;  // a file system without such renames
    if ((unknown && fs::exists(target, ignored)) || errno == EEXIST)
      bad_input("{} exists by now, made by another command: name another, or remove it", target.string());
    check(unknown, "{} cannot be created: {}", target.string(), std::strerror(errno));
    fs::rename(from, target);
  });
}

bool has_live_scratch() { return live().count.load() > 0; }

void remove_live_scratch() {
  live().mutex.lock();  // for good
  for (const fs::path& path : live().paths) {
    const std::string name = path.string();
    const fs::path aside = name.substr(0, name.size() - kDigits) + random_id();
    std::error_code error;
    fs::rename(path, aside, error);  // so that other threads cannot create files in it while it is emptied
    remove_marked(error ? path : aside);
  }
}

int open_unnamed_file(const fs::path& folder) {
  const int file = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT))
    return file;
  std::string name = (folder / "trifold-XXXXXX").string();
  const int named = ::mkostemp(name.data(), O_CLOEXEC);
  if (named >= 0) ::unlink(name.c_str());
  return named;
}

}  // namespace trifold
