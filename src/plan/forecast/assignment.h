// Parses "KEY=VALUE", the form of options that set one of several values.
#pragma once

#include <string>
#include <utility>

namespace trifold {

// Key and value. Throws Error(BadInput) naming `option` unless there is an '=' between two non-empty texts.
std::pair<std::string, std::string> split_assignment(const char* option, const std::string& assignment);

// The finite number that `value` is. Throws Error(BadInput) naming `key`.
double number_of(const std::string& key, const std::string& value);

}  // namespace trifold
