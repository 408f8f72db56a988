// Translator replaces options of other programs by own ones, as the table in foreign_options.h says, before the words
// of a command line or the entries of a configuration file are read.
//
//   Translator translator(table, common);
//   const std::vector<std::string> own = translator.translate(words);
//
// Options without effect become notes; options that are not available, values that are not known, and options that
// contradict an own option on the same line become problems. Words that the table does not decide are left as they
// are: the reader of the own options reports them.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/foreign/foreign_options.h"
#include "config/options/option.h"

namespace trifold {

// An option with the words given for it; "true" for a flag.
struct GivenOption {
  std::string name;  // canonical spelling, without "--"
  std::vector<std::string> values;
};

class Translator {
 public:
  // `own` has the options of the command, `common` the options of every command. Both must outlive the translator.
  Translator(const OptionTable& own, const OptionTable& common) : own_(own), common_(common) {}

  // The words of a command line, with own options in place of foreign ones.
  std::vector<std::string> translate(std::span<const std::string> words);

  // Single options, such as the entries of a file, are translated in two passes. `add_given` announces every option first, in any order;
  // then `take` is called for each: own options that replace it, perhaps none, or nullopt if the option stays as it is.
  // Messages begin with `place`, such as "run.ini:3: ".
  void add_given(const GivenOption& option);
  std::optional<std::vector<GivenOption>> take(const GivenOption& option, const std::string& place);
  // Whether several words may follow the option `name` in a file: a list.
  bool takes_several(std::string_view name) const;

  const std::vector<std::string>& notes() const { return notes_; }
  const std::vector<std::string>& problems() const { return problems_; }
  // Own options whose value is in doubt because of a problem.
  const std::set<std::string>& doubtful() const { return doubtful_; }
  // The program whose options are among the words: "Megatron-LM"; empty if there are none.
  const std::string& program() const { return program_; }
  // For own options that replace foreign ones, the spelling given: "--use-distributed-optimizer".
  const std::map<std::string, std::string>& spellings() const { return spellings_; }

 private:
  struct Word;  // a word of a command line that names an option, and the number of words that are its values
  Word read_word(std::span<const std::string> words, size_t at) const;

  const Option* find_own(std::string_view name) const;
  bool trains_or_plans() const { return own_.find("micro-batch-size") != nullptr; }
  void note(std::string text);
  std::vector<GivenOption> meaning(const Option& own, const GivenOption& option) const;
  bool is_shadowed(const ForeignFate& fate) const;
  std::optional<std::vector<GivenOption>> own_options(const ForeignFate& fate,
                                                      const GivenOption& option) const;
  std::vector<GivenOption> without_repeated(std::vector<GivenOption> options, const GivenOption& given,
                                            const std::string& place);

  const OptionTable& own_;
  const OptionTable& common_;
  std::set<std::string> names_;                                 // names of all options given
  std::map<std::string, std::vector<std::string>> own_values_;  // values of own options given as such
  std::map<std::string, std::vector<GivenOption>> meanings_;    // what the first of each such option means
  std::map<std::string, std::vector<std::string>>
      translated_;  // values of own options that replace foreign ones
  std::vector<std::string> notes_, problems_;
  std::set<std::string> doubtful_;
  std::map<std::string, std::string> spellings_;
  std::string program_;
};

}  // namespace trifold
