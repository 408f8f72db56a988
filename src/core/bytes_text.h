// Numbers of bytes as people read them.
#pragma once

#include <cstddef>
#include <string>

namespace trifold {

// In the largest binary unit of which there is at least one, rounded: "512 B", "350.00 KiB", "1.21 GiB".
std::string bytes_text(size_t bytes);

}  // namespace trifold
