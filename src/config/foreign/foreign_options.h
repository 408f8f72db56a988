// ForeignOption: an option of another program (Megatron-LM, DeepSpeed, Hugging Face's Trainer, torchrun, nanoGPT), and
// its fate in a command here. All of them are data: options.inc is the one file to edit, and its first lines explain
// its keys. An own option is listed there too if other programs give it values that have other names here.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trifold {

struct ForeignFate {
  enum class Kind {
    Unlisted,  // the table does not decide: of an own option, the value is taken as it is
    Ours,      // equals own options with values
    Always,    // requests what is always done here
    Nothing,   // concerns nothing that this program does; results do not depend on it
    Refused,   // would change the result, and is not available
    Advice,    // an unknown option, whose name here is known
  };
  Kind kind = Kind::Unlisted;
  std::string text;  // For Ours "--zero-stage 1", where {} stands for the given values; otherwise the reason
  std::string ours;  // Advice: the equivalent option, without "--"; may be empty
  // Ours, Refused: options, own or foreign, or NAME=VALUE of an own one, with which the option has no effect, ...
  std::vector<std::string> unless;
  std::string then;  // ... and the reason why
};

// A condition on another key of the same file: that it has one of some values or, negated, none of them.
struct ForeignCondition {
  static constexpr const char* kAbsent = "absent";  // the value of a key that the file lacks

  std::string key;
  std::vector<std::string> values;  // folded (config/fields/spelling.h)
  bool negated = false;
};

struct ForeignOption {
  static constexpr int kAnyNumber = -1;

  std::string name;                                        // canonical spelling, without "--"
  int words = 0;                                           // values that follow the name; 0: a flag
  std::map<std::string, ForeignFate, std::less<>> values;  // by value, folded (config/fields/spelling.h), ...
  ForeignFate otherwise;                                   // ... and of all other values

  std::string program;  // the subject up to its colon: "Megatron-LM"; options of command lines alone

  // For keys of files alone:
  std::vector<ForeignCondition> when;  // all must hold, ...
  std::string otherwise_then;          // ... or else the entry means nothing, for this reason
  ForeignFate absent;                  // the fate of a key that a file lacks

  const ForeignFate& fate(std::span<const std::string> given) const;
};

// The entry for the option `name` (canonical spelling, without "--"); null if the table has none.
const ForeignOption* foreign_option(std::string_view name);
const std::vector<ForeignOption>& foreign_options();

// The keys of another program's configuration files (config_files.inc), sorted by name.
struct ForeignFile {
  std::string program;
  std::vector<ForeignOption> keys;
};
const std::vector<ForeignFile>& foreign_files();

// The first entry of that name in a list sorted by name, which others of that name follow; null if there is none.
const ForeignOption* find_foreign(const std::vector<ForeignOption>& options, std::string_view name);

// Parses a table, and sorts it by name; throws Error(BadInput) that names the entry which breaks the form.
std::vector<ForeignOption> parse_foreign_options(std::string_view json);

}  // namespace trifold
