#include "files/output_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <filesystem>

#include "core/error.h"
#include "files/file.h"

namespace trifold {

namespace fs = std::filesystem;

namespace {

bool writable(const fs::path& path) { return access(path.c_str(), W_OK) == 0; }

// Rejects names that no file system accepts, which would otherwise fail when the first file is created.
void check_lengths(const std::string& option, const std::string& path) {
  constexpr size_t kRoom = 128;  // for the names of files within a folder
  if (path.size() + kRoom > PATH_MAX)
    bad_input("{} {}...: a path of {} bytes is too long; {} are allowed", option, path.substr(0, 60),
              path.size(), PATH_MAX - kRoom);
  for (const fs::path& part : fs::path(path))
    if (part.native().size() > NAME_MAX)
      bad_input("{} {}...: a name of {} bytes is too long; {} are allowed", option,
                part.string().substr(0, 60), part.native().size(), NAME_MAX);
}

}  // namespace

void check_writable_file(const std::string& option, const std::string& path) {
  std::error_code ignored;
  check_lengths(option, path);
  if (path == "-") bad_input("{} -: the standard output cannot be used here; name a file", option);
  if (fs::is_directory(path, ignored)) bad_input("{} {}: that is a folder; name a file", option, path);
  const fs::path folder = fs::absolute(end_of_links(path)).parent_path();
  if (!fs::is_directory(folder, ignored))
    bad_input("{} {}: there is no folder {}", option, path, folder.string());
  if (!writable(fs::exists(path, ignored) ? fs::path(path) : folder))
    bad_input("{} {}: it cannot be written", option, path);
}

void check_writable_folder(const std::string& option, const std::string& path) {
  std::error_code ignored;
  check_lengths(option, path);
  // The deepest part of the path that exists decides.
  fs::path there = fs::absolute(path);
  while (!fs::exists(there, ignored) && there.has_relative_path()) {
    if (fs::is_symlink(there, ignored))
      bad_input("{} {}: {} is a link to {}, which does not exist; create that folder, or name another",
                option, path, there.string(), fs::read_symlink(there, ignored).string());
    there = there.parent_path();
  }
  if (!fs::is_directory(there, ignored))
    bad_input("{} {}: {} is a file; name a folder", option, path, there.string());
  if (!writable(there)) bad_input("{} {}: {} cannot be written to", option, path, there.string());
}

namespace {

// Whether the program already prints to this file: /dev/stdout may be a link to it.
bool is_printed_to(const fs::path& file) {
  struct stat of_file {};
  struct stat printed {};
  if (::stat(file.c_str(), &of_file) != 0) return false;
  for (const int stream : {STDOUT_FILENO, STDERR_FILENO})
    if (::fstat(stream, &printed) == 0 && printed.st_dev == of_file.st_dev &&
        printed.st_ino == of_file.st_ino)
      return true;
  return false;
}

// Whether the file can be replaced by a rename. Links in /proc to pipes and sockets have targets that do not exist as
// paths.
bool is_replaceable(const fs::path& path) {
  std::error_code ignored;
  const fs::file_status old = fs::status(path, ignored);
  if (fs::exists(old) && (!fs::is_regular_file(old) || is_printed_to(path))) return false;
  return writable(end_of_links(path).parent_path());
}

}  // namespace

template <class Work>
void OutputFile::named(Work&& work) const {
  try {
    work();
  } catch (Error& error) {
    error.add_context(name_);
    throw;
  }
}

OutputFile::OutputFile(const std::string& option, const std::string& path)
    : name_(fmt::format("{} {}", option, path)) {
  named([&] {
    if (is_replaceable(path))
      replacement_.emplace(path);
    else
      plain_.open(path, std::ios::binary);
    check(replacement_ || plain_.is_open(), "it cannot be opened: {}", std::strerror(errno));
  });
}

void OutputFile::write(std::string_view text) {
  named([&] {
    if (replacement_) return replacement_->write(text);
    plain_ << text;
    check(static_cast<bool>(plain_), "writing failed; is the disk full?");
  });
}

void OutputFile::finish() {
  named([&] {
    if (replacement_) return replacement_->finish();
    check(static_cast<bool>(plain_ << std::flush), "writing failed; is the disk full?");
  });
}

void write_file(const std::string& option, const std::string& path, const std::string& text) {
  OutputFile file(option, path);
  file.write(text);
  file.finish();
}

}  // namespace trifold
