// Opens files that the user names. Every reader of such a file opens it here, so that pipes, devices, sockets and
// directories are rejected at once: they have no size, and might block or never end.
#pragma once

#include <cstdint>
#include <string>

namespace trifold {

// Opens the regular file at `path` for reading; the caller closes the descriptor. Throws BadInput, naming
// `path` and the reason, if the file cannot be opened or is not a regular file. Never blocks.
int open_input_file(const std::string& path);

// The content of the regular text file at `path`. BadInput, naming it, if it cannot be read, has more than
// `most_bytes` bytes (checked before anything is read), or is packed data, not text (core/plain_text.h).
std::string read_input_file(const std::string& path, int64_t most_bytes);

}  // namespace trifold
