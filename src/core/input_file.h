// Opening files that the user names. Every reader of such a file opens it here, so that a pipe, a device, a
// socket or a directory is refused at once: it has no size, and might block for ever or never end.
#pragma once

#include <cstdint>
#include <string>

namespace trifold {

// A descriptor of the regular file at `path`, open for reading; the caller closes it. BadInput, naming `path`
// and what is wrong, when it cannot be opened or is no regular file. Never waits.
int open_input_file(const std::string& path);

// What the regular file of text at `path` holds. BadInput, naming it, when it cannot be read, has more than
// `most_bytes` bytes, which is found before anything is read, or is no text but packed (core/plain_text.h).
std::string read_input_file(const std::string& path, int64_t most_bytes);

}  // namespace trifold
