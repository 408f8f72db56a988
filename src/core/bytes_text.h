// Amounts as text, for messages and reports.
#pragma once

#include <cstddef>
#include <string>

namespace trifold {

// `bytes` in the largest binary unit that does not exceed it, rounded: "512 B", "350.00 KiB", "1.21 GiB".
std::string bytes_text(size_t bytes);

// "1.01 T", "174.6 G", "38.6 k"
std::string count_text(double value);

// A rate with at least two digits that count: "0.71", "9.30", "23.4", "9703".
std::string rate_text(double per_second);

// "2.500 s", "1.250 ms", "3.000 us"
std::string seconds_text(double seconds);

}  // namespace trifold
