// Recognizes, by its first bytes, a file that should be text but is not.
#pragma once

#include <string>
#include <string_view>

namespace trifold {

// Throws BadInput, naming `path`, the kind of file and how to turn it into text, if `start`, the first bytes
// of the file, are those of packed data (gzip, zstd, xz, bzip2, zip) or of text in UTF-16 or UTF-32. Four
// bytes are enough; more do no harm.
void expect_plain_text(std::string_view start, const std::string& path);

}  // namespace trifold
