#include "checkpoint/save_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "checkpoint/first_step.h"
#include "checkpoint/reader.h"
#include "core/host_name.h"
#include "core/printable.h"
#include "files/file.h"
#include "files/scratch_folder.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kOwnerBegin = "process ";

}  // namespace

int64_t step_of_name(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return -1;
  const std::string digits(name.substr(prefix.size()));
  if (digits.empty() || digits.size() > 18) return -1;
  if (digits.find_first_not_of("0123456789") != std::string::npos) return -1;
  return std::stoll(digits);
}

int64_t step_of_name(std::string_view name) { return step_of_name(name, kPrefix); }

namespace {

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

std::string this_process() { return fmt::format("{}{} on host {}", kOwnerBegin, ::getpid(), host_name()); }

// The note about itself that the run which locked an open folder wrote; empty if it cannot be read.
std::string owner_of(int folder) {
  const int file = ::openat(folder, std::string(kOwnerName).c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return {};
  std::array<char, 400> text{};
  const ssize_t bytes = ::read(file, text.data(), text.size());
  ::close(file);
  const std::string_view line(text.data(), static_cast<size_t>(std::max<ssize_t>(bytes, 0)));
  return std::string(line.substr(0, line.find('\n')));
}

// Writes a hint for runs that are rejected later. If it cannot be written, as on a full disk, the run
// continues.
void write_owner(int folder) {
  ::unlinkat(folder, std::string(kOwnerName).c_str(), 0);  // a killed run's file
  const int file = ::openat(folder, std::string(kOwnerName).c_str(),
                            O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
  if (file < 0) return;
  const std::string line = this_process() + "\n";
  [[maybe_unused]] const ssize_t written = ::write(file, line.data(), line.size());
  ::close(file);
}

// Whether a file system reports with this error that it has no locks.
bool means_no_locks(int error) {
  for (const int each : {ENOSYS, EOPNOTSUPP, ENOTSUP, ENOLCK, EINVAL, EBADF})
    if (error == each) return true;
  return false;
}

// Takes the lock of an open folder with flock's `operation`. BadInput if another process has it. Returns 0, or the
// error by which the file system reports that it has no locks. A mere check (check_not_taken) holds the lock for a
// moment, so this waits for its release.
int take(int folder, const fs::path& root, int operation, SaveFolder::Lock lock, const std::string& option) {
  constexpr int kTries = 20;
  for (int tries = 1; lock(folder, operation | LOCK_NB) != 0;) {
    const int error = errno;
    if (means_no_locks(error)) return error;
    check(error == EWOULDBLOCK || error == EINTR, "{} cannot be locked for this run: {}", root.string(),
          std::strerror(error));
    if (error == EWOULDBLOCK && tries++ == kTries) {
      const std::string owner = owner_of(folder);
      bad_input("another run saves in {}{}: end it, or give another {}", root.string(),
                owner.empty() ? "" : fmt::format(" ({})", owner), option);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return 0;
}

// Whether a run may have written this text, the first bytes of its file `name`. A step's name that was damaged later
// may be replaced too: it contains nothing that the folder does not.
bool is_own_text(std::string_view name, std::string_view text) {
  if (text.empty()) return true;  // cut short by a full disk
  if (name == kOwnerName) return text.starts_with(kOwnerBegin);
  return text.starts_with(kPrefix);
}

}  // namespace

void check_not_taken(const fs::path& root, const std::string& option) {
  const int folder = open_folder(root);
  try {
    take(folder, root, LOCK_SH, ::flock, option);  // shared: several processes may check at once
  } catch (...) {
    ::close(folder);
    throw;
  }
  ::close(folder);
}

void check_own_files(const fs::path& root, const std::string& option) {
  for (const std::string_view name : {kLatestName, kBestName, kOwnerName}) {
    const fs::path path = root / name;
    std::error_code ignored;
    const fs::file_status status = fs::symlink_status(path, ignored);
    if (!fs::exists(status)) continue;
    std::string what;
    if (fs::is_symlink(status))
      what = fmt::format("a link to {}", fs::read_symlink(path, ignored).string());
    else if (!fs::is_regular_file(status))
      what = "no regular file";
    else if (const std::string text = first_bytes(path, kMostShownBytes); !is_own_text(name, text))
      what = fmt::format("a file that begins with '{}'", printable(text));
    if (!what.empty())
      bad_input(
          "{} is {}, and a run would replace it by its own file: remove or rename it, or give another {}",
          path.string(), what, option);
  }
}

SaveFolder::SaveFolder(const fs::path& root, Lock lock, const std::string& option)
    : root_(root), option_(option) {
  std::error_code error;
  fs::create_directories(root, error);
  if (error) bad_input("the folder {} cannot be created: {}", root.string(), error.message());
  fd_ = open_folder(root);
  try {
    check_own_files(root, option);
    if (const int none = take(fd_, root, LOCK_EX, lock == nullptr ? ::flock : lock, option))
      warnings_.push_back(
          fmt::format("the file system of {} has no locks ({}), so another run could save there too: make "
                      "sure that none does",
                      root.string(), std::strerror(none)));
    write_owner(fd_);
    for (std::string& warning : remove_abandoned_scratch(root, {}, true))
      warnings_.push_back(std::move(warning));
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

SaveFolder::~SaveFolder() {
  ::unlinkat(fd_, std::string(kOwnerName).c_str(), 0);
  ::close(fd_);
}

void SaveFolder::check_in_place() const {
  struct stat held {};
  struct stat found {};
  const bool known = ::fstat(fd_, &held) == 0;
  check(known, "{}: {}", root_.string(), std::strerror(errno));
  const bool there = ::stat(root_.c_str(), &found) == 0;
  check(there && held.st_dev == found.st_dev && held.st_ino == found.st_ino,
        "{} was {} while this run saved into it: put the folder back, or end the run and restart it with {} "
        "naming the folder where its files are now",
        root_.string(), there ? "replaced by another folder" : "moved or removed", option_);
}

std::vector<std::pair<int64_t, fs::path>> folders_of_steps(const fs::path& root, std::string_view prefix) {
  std::vector<std::pair<int64_t, fs::path>> found;
  std::error_code error;  // the folder may be missing, or change meanwhile
  for (fs::directory_iterator entry(root, error), end; !error && entry != end; entry.increment(error)) {
    const int64_t step = step_of_name(entry->path().filename().string(), prefix);
    std::error_code gone;
    if (step >= 0 && entry->is_directory(gone)) found.emplace_back(step, entry->path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

std::vector<std::pair<int64_t, fs::path>> checkpoints_in(const fs::path& root) {
  return folders_of_steps(root, kPrefix);
}

std::string cannot_be_removed(const fs::path& old, const std::error_code& error, std::string_view what) {
  return fmt::format("the old {} {} cannot be removed and still takes up space: {}", what, old.string(),
                     error.message());
}

int64_t latest_step(const fs::path& root) {
  std::error_code missing;
  if (!fs::is_regular_file(root / kLatestName, missing)) return -1;
  const std::string text = first_bytes(root / kLatestName, kMostShownBytes);
  return step_of_name(std::string_view(text).substr(0, text.find('\n')));
}

void mark_best(const fs::path& root, int64_t step) {
  replace_text(root / kBestName, step_directory_name(step) + "\n", Links::Replaced);
}

fs::path best_checkpoint(const fs::path& file) {
  std::string name = first_bytes(file, kMostShownBytes);
  if (name.ends_with('\n')) name.pop_back();
  if (step_of_name(name) < 0)
    bad_input("{}: '{}' is not the name of a checkpoint", file.string(), printable(name));
  return file.parent_path() / name;
}

namespace {

// The name of the folder's best checkpoint; empty if there is none, or it cannot be determined.
std::string name_of_best(const fs::path& root) {
  std::error_code missing;
  if (!fs::is_regular_file(root / kBestName, missing)) return {};
  try {
    return best_checkpoint(root / kBestName).filename().string();
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

void remove_old(const fs::path& old, std::string_view what, const SaveOptions& options) {
  ScratchFolder scratch(old);
  std::error_code error;
  ScratchFolder::protect([&] { fs::rename(old, scratch.file("old"), error); });
  if (error) return options.report(cannot_be_removed(old, error, what));
  options.reach(SavePhase::OldMovedAway);
  error = scratch.remove();
  if (error) options.report(cannot_be_removed(scratch.path(), error, what));
}

void retire_checkpoints(const fs::path& root, const SaveOptions& options) {
  const std::string best = name_of_best(root);
  const int keep = std::max(2, options.retain);
  int good = 0;
  bool has_proved = false;  // one that is kept is known to have been trained on
  for (const auto& [step, checkpoint] : checkpoints_in(root)) {
    const FirstStep::Outcome first = first_step_of(checkpoint).outcome;
    const bool proved = first == FirstStep::Outcome::Finite;
    if (good < keep) {
      const bool counts = first != FirstStep::Outcome::NotFinite && is_good(checkpoint);
      good += counts ? 1 : 0;
      has_proved = has_proved || (proved && counts);
      continue;
    }
    if (!has_proved && proved && is_good(checkpoint)) {
      has_proved = true;
      continue;
    }
    if (checkpoint.filename() == best) continue;
    remove_old(checkpoint, "checkpoint", options);
  }
}

}  // namespace trifold
