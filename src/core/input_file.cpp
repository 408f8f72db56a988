#include "core/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/plain_text.h"

namespace trifold {

namespace {

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "something else";
}

// Closes a descriptor at the end of its scope, unless it was released.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  int release() {
    const int number = number_;
    number_ = -1;
    return number;
  }

 private:
  int number_;
};

struct stat status_of(int descriptor, const std::string& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) bad_input("{} cannot be read: {}", path, std::strerror(errno));
  return status;
}

}  // namespace

int open_input_file(const std::string& path) {
  // O_NONBLOCK: opening a pipe would wait for a writer; it has no effect on regular files. Other files are
  // rejected before they are opened if possible, because opening some devices has side effects.
  struct stat before {};
  if (::stat(path.c_str(), &before) == 0 && !S_ISREG(before.st_mode))
    bad_input("{} is {}, not a regular file", path, kind_of(before.st_mode));
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.number() < 0) bad_input("{} cannot be opened: {}", path, std::strerror(errno));
  const mode_t mode = status_of(file.number(), path).st_mode;
  if (!S_ISREG(mode)) bad_input("{} is {}, not a regular file", path, kind_of(mode));
  return file.release();
}

std::string read_input_file(const std::string& path, int64_t most_bytes) {
  const Descriptor file(open_input_file(path));
  const int64_t size = status_of(file.number(), path).st_size;
  if (size > most_bytes)
    bad_input("{} has {} bytes, more than the {} that such a file may have", path, size, most_bytes);
  std::string text(static_cast<size_t>(size), '\0');
  for (size_t done = 0; done < text.size();) {
    const ssize_t got = ::read(file.number(), text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) bad_input("{} cannot be read: {}", path, std::strerror(errno));
    if (got == 0) bad_input("{} ends at byte {} of {}: it is being changed", path, done, size);
    done += static_cast<size_t>(got);
  }
  expect_plain_text(text, path);
  return text;
}

}  // namespace trifold
