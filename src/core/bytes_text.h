// Byte counts as text, for messages and reports.
#pragma once

#include <cstddef>
#include <string>

namespace trifold {

// `bytes` in the largest binary unit that does not exceed it, rounded: "512 B", "350.00 KiB", "1.21 GiB".
std::string bytes_text(size_t bytes);

}  // namespace trifold
