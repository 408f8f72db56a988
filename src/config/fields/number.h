// Converts between numbers and text, strictly: the whole text must be the number, and the number must fit.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trifold {

// Each throws Error(BadInput) that begins with the text in quotes and says what is wrong with it.
int64_t parse_int64(std::string_view text);
int parse_int(std::string_view text);
uint64_t parse_uint64(std::string_view text);
double parse_double(std::string_view text);  // finite only

// The shortest decimal text that parse_double reads back to exactly `value`.
std::string format_double(double value);

}  // namespace trifold
