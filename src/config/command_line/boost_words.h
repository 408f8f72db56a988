// Splits the words of a command line into options and their values, by Boost.Program_options.
#pragma once

#include <boost/program_options/option.hpp>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "config/options/option.h"

namespace trifold {

// The words that Boost found, and the values of flags written as --flag=value, for which Boost allows none.
struct GivenWords {
  std::vector<boost::program_options::option> options;
  std::map<std::string, std::string> flag_values;
};

// Splits `arguments` (the words after the command). Unknown options are among the result, marked as unregistered; names
// that the table knows are canonical. Throws Error(BadInput) for an option without its value.
GivenWords boost_parse(const OptionTable& table, std::span<const std::string> arguments);

}  // namespace trifold
