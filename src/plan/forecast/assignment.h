// Parses "KEY=VALUE", the form of options that set one of several values.
#pragma once

#include <string>
#include <utility>

namespace trifold {

// Splits into key and value. Throws Error(BadInput) naming `option` unless both are non-empty.
std::pair<std::string, std::string> split_assignment(const char* option, const std::string& assignment);

// Parses a finite number. Throws Error(BadInput) naming `key`.
double parse_number(const std::string& key, const std::string& value);

}  // namespace trifold
