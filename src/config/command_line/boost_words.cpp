#include "config/command_line/boost_words.h"

#include <algorithm>
#include <boost/program_options/options_description.hpp>
#include <boost/program_options/parsers.hpp>
#include <boost/program_options/value_semantic.hpp>

#include "config/command_line/parse.h"
#include "core/error.h"

namespace trifold {
namespace {

namespace po = boost::program_options;

// Values pass through Boost as plain text: set_value checks them more strictly than a lexical cast would.
const po::value_semantic* semantic(const Option& option) {
  if (is_flag(option)) return new po::untyped_value(true);  // Boost takes ownership
  if (is_list(option)) return po::value<std::vector<std::string>>()->multitoken();
  return po::value<std::string>();
}

po::options_description boost_options(const OptionTable& table) {
  po::options_description result;
  const auto add = [&](const Option& option) {
    std::string names = option.name;
    for (const std::string& alias : option.aliases) names += "," + alias;
    for (const OldSpelling& old : option.old_spellings) names += "," + old.name;
    result.add_options()(names.c_str(), semantic(option), "");
  };
  for (const Option& option : table.options()) add(option);
  for (const Option& option : common_options().options()) add(option);
  return result;
}

// Boost calls this before it parses a word: it rewrites --some_name=value to --some-name=value and removes the value of
// a flag.
void rewrite(const OptionTable& table, std::string& word, GivenWords& result) {
  if (!word.starts_with("--")) return;
  const size_t equals = std::min(word.find('='), word.size());
  std::replace(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals), '_', '-');
  if (equals == word.size()) return;
  const std::string name = word.substr(2, equals - 2);
  const Option* option = table.find(name);
  if (option == nullptr) option = common_options().find(name);
  if (option == nullptr || !is_flag(*option)) return;
  result.flag_values[option->name] = word.substr(equals + 1);
  word.resize(equals);
}

}  // namespace

GivenWords boost_parse(const OptionTable& table, std::span<const std::string> arguments) {
  using namespace po::command_line_style;
  GivenWords result;
  const po::options_description description = boost_options(table);
  const auto rewrite_next = [&](std::vector<std::string>& words) {
    rewrite(table, words.front(), result);
    return std::vector<po::option>();
  };
  try {
    result.options = po::command_line_parser(std::vector<std::string>(arguments.begin(), arguments.end()))
                         .options(description)
                         .style(allow_long | long_allow_adjacent | long_allow_next)
                         .extra_style_parser(rewrite_next)
                         .allow_unregistered()
                         .run()
                         .options;
    return result;
  } catch (const po::invalid_command_line_syntax& error) {
    const std::string name = hyphenated(error.get_option_name());
    using Syntax = po::invalid_syntax;
    if (error.kind() == Syntax::missing_parameter) bad_input("{} needs a value", name);
    if (error.kind() == Syntax::empty_adjacent_parameter) bad_input("{} has no value after the '='", name);
    bad_input("{}: {}", name, error.what());
  } catch (const po::error& error) {
    bad_input("the command line cannot be read: {}", error.what());
  }
}

}  // namespace trifold
