// "KEY=VALUE", as options that take several of them are given.
#pragma once

#include <string>
#include <utility>

namespace trifold {

// Key and value. Throws Error(BadInput) naming `option` where there is no '=' between two texts.
std::pair<std::string, std::string> split_assignment(const char* option, const std::string& assignment);

// The finite number that `value` is. Throws Error(BadInput) naming `key`.
double number_of(const std::string& key, const std::string& value);

}  // namespace trifold
