// Recognizes, by its first bytes, a file that should be text but is not.
#pragma once

#include <string>
#include <string_view>

namespace trifold {

// `start` is the beginning of the file, at least four bytes if the file has them. Throws BadInput if it identifies
// packed data (gzip, zstd, xz, bzip2, zip) or text in UTF-16 or UTF-32; the message names `path`, the kind of file and
// how to convert it to text.
void expect_plain_text(std::string_view start, const std::string& path);

}  // namespace trifold
