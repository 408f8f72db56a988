// Option: one option of a command, bound to the field of the configuration it sets; OptionTable: all of a
// command's options in the order of its help. Everything the command line does (parsing, help, completion,
// --print-config, JSON, range checks) reads this one table, so that none of them can know an option the
// others do not.
//
// A table points into the configuration it was made for and must not outlive it.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "config/config.h"

namespace trifold {

// A field; its type decides what text is accepted. An optional field may stay unset.
using Field = std::variant<bool*, int*, int64_t*, uint64_t*, double*, std::string*, std::vector<std::string>*,
                           std::optional<int>*, std::optional<int64_t>*, std::optional<double>*,
                           std::optional<std::string>*, LrDecayStyle*, WsdDecayStyle*, RecomputeGranularity*,
                           std::optional<ReducePolicy>*>;

// The numbers an option accepts; `above` and `below` leave out the bound itself.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above = false;
  bool below = false;
};

struct Option {
  std::string name;   // canonical, with hyphens, without "--"
  std::string group;  // heading in --help
  std::string help;   // one sentence, without the default
  Field field;
  std::vector<std::string> aliases = {};    // other spellings
  std::string argument = "";                // what --help calls the value: N, X, FILE; empty for a flag
  std::vector<std::string> allowed = {};    // of a choice, in the order of its enum; empty: anything
  std::vector<std::string> suggested = {};  // completed with these, but other text is possible too
  std::string when_absent = "";             // what holds when an optional field is not set
  Range bounds = {};
  std::string instead = "";  // another option that makes a required one needless
  bool required = false;
  bool path = false;   // completed with file names
  bool local = false;  // says where a rank finds something on its host, or how it uses that: ranks may differ

  // Builders, used as table.add(...).range(1, 10).also("x").
  Option& need(std::string other = "");             // must be given, or the option called `other` instead
  Option& range(double low, double high);           // low <= value <= high
  Option& positive();                               // value > 0
  Option& at_least(double low);                     // value >= low
  Option& fraction();                               // 0 <= value < 1
  Option& one_of(std::vector<std::string> names);   // a choice
  Option& files(std::string what);                  // names files
  Option& suggest(std::vector<std::string> names);  // suggested
  Option& optional();                               // need not be given after all
  Option& also(std::string alias);                  // another spelling
  Option& absent(std::string text);                 // when_absent
  Option& takes(std::string what);                  // argument
  Option& of_host();                                // local
};

class OptionTable {
 public:
  // Starts a group; the options added next belong to it.
  void group(std::string title) { group_ = std::move(title); }
  // Adds an option; the reference is good until the next add.
  Option& add(std::string name, Field field, std::string help);

  std::span<const Option> options() const { return options_; }
  // The option of that name, for a table that wants it a little different; an Error when there is none.
  Option& change(std::string_view name);
  // The option with this canonical name or alias, underscores taken as hyphens; null when there is none.
  const Option* find(std::string_view name) const;

 private:
  std::string group_;
  std::vector<Option> options_;
};

bool is_flag(const Option& option);
bool is_list(const Option& option);

// Sets the field from the words given for it (one word unless it is a list). Throws Error(BadInput) that
// names the option and the word and says what would be right. A range is not checked here: see range_problem.
void set_value(const Option& option, std::span<const std::string> words);

// The field as words that set_value takes back to exactly the same value; nullopt when it is unset.
std::optional<std::vector<std::string>> value_words(const Option& option);
// The same as one text, for messages; empty when unset.
std::string value_text(const Option& option);

// What is wrong with the field's value by itself: out of range, not one of the choices, or required and
// missing.
std::optional<std::string> range_problem(const Option& option);

// "at least 1", "above 0", "at least 0 and below 1": the bounds in words; empty when there are none.
std::string describe(const Range& range, bool whole);

// `name` with underscores replaced by hyphens.
std::string hyphenated(std::string_view name);

}  // namespace trifold
