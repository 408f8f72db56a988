#include "config/foreign/translate.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

#include "config/fields/spelling.h"
#include "core/printable.h"

namespace trifold {
namespace {

constexpr std::string_view kValues = "{}";  // in the text of ForeignFate::Kind::Ours

// "--name a b", as the user gave it; a flag without its "true".
std::string spelled(const std::string& name, const std::vector<std::string>& values) {
  std::string text = "--" + name;
  if (values.size() == 1 && values.front() == "true") return text;
  for (const std::string& value : values) text += " " + printable(value);
  return text;
}

bool names_option(const std::string& word) { return word.size() > 2 && word.starts_with("--"); }

size_t words_before_option(std::span<const std::string> words, size_t at) {
  size_t count = 0;
  while (at + count < words.size() && !names_option(words[at + count])) ++count;
  return count;
}

// A flag of another program that is set to false, which is its default there: "rotary-interleaved = false". False for
// what is always done here would ask for something that is not possible.
bool is_false_flag(const GivenOption& option) {
  using Kind = ForeignFate::Kind;
  const ForeignOption* foreign = foreign_option(option.name);
  if (foreign == nullptr || foreign->words != 0) return false;
  const Kind kind = foreign->otherwise.kind;
  return kind != Kind::Advice && kind != Kind::Always && option.values.size() == 1 &&
         folded(option.values.front()) == "false";
}

std::string known_values(const ForeignOption& option) {
  std::vector<std::string> values;
  for (const auto& [value, fate] : option.values) values.push_back(value);
  return fmt::format("{}", fmt::join(values, ", "));
}

}  // namespace

struct Translator::Word {
  GivenOption option;
  size_t words = 1;          // the name and its values
  bool lacks_value = false;  // the table wants one, and none follows
};

const Option* Translator::find_own(std::string_view name) const {
  const Option* option = own_.find(name);
  return option != nullptr ? option : common_.find(name);
}

bool Translator::takes_several(std::string_view name) const {
  const ForeignOption* foreign = foreign_option(hyphenated(name));
  if (foreign != nullptr && foreign->words == ForeignOption::kAnyNumber) return true;
  const Option* option = find_own(name);
  return option != nullptr && is_list(*option);
}

Translator::Word Translator::read_word(std::span<const std::string> words, size_t at) const {
  const std::string& word = words[at];
  const size_t equals = word.find('=');
  Word result;
  result.option.name = hyphenated(word.substr(2, equals == std::string::npos ? equals : equals - 2));
  if (equals != std::string::npos) {
    result.option.values = {word.substr(equals + 1)};
    return result;
  }
  const Option* own = find_own(result.option.name);
  const ForeignOption* foreign = foreign_option(result.option.name);
  size_t count = words_before_option(words, at + 1);
  const bool takes_word = foreign != nullptr && foreign->words != 0;
  const bool flag = own != nullptr ? is_flag(*own) && !(takes_word && count > 0) : !takes_word;
  if (flag) {
    result.option.values = {"true"};
    return result;
  }
  // Like Boost, an own option takes the next word in any case.
  if (own != nullptr && count == 0 && at + 1 < words.size()) count = 1;
  result.lacks_value = own == nullptr && count == 0 && foreign->words == 1;
  if (!takes_several(result.option.name)) count = std::min<size_t>(count, 1);
  for (size_t i = 1; i <= count; ++i) result.option.values.push_back(words[at + i]);
  result.words += count;
  return result;
}

// What a value of an own option means: own options, of which that one is the first.
std::vector<GivenOption> Translator::meaning(const Option& own, const GivenOption& option) const {
  std::vector<GivenOption> result{{own.name, option.values}};
  const ForeignOption* foreign = foreign_option(option.name);
  if (foreign == nullptr || foreign->fate(option.values).kind != ForeignFate::Kind::Ours) return result;
  for (GivenOption& meant :
       own_options(foreign->fate(option.values), option).value_or(std::vector<GivenOption>())) {
    if (meant.name == own.name)
      result.front().values = std::move(meant.values);
    else
      result.push_back(std::move(meant));
  }
  return result;
}

void Translator::add_given(const GivenOption& option) {
  const Option* own = find_own(option.name);
  if (own == nullptr) {
    if (!is_false_flag(option)) names_.insert(option.name);
    return;
  }
  names_.insert(option.name);
  // A value of another program counts as the own one.
  const std::vector<GivenOption> meant = meaning(*own, option);
  own_values_.emplace(own->name, meant.front().values);
  const std::vector<GivenOption>& first = meanings_.emplace(own->name, meant).first->second;
  // The reader of the own options reports different values of the own option.
  const auto same = [](const GivenOption& left, const GivenOption& right) {
    return left.name == right.name && left.values == right.values;
  };
  if (!same(first.front(), meant.front()) ||
      std::equal(first.begin(), first.end(), meant.begin(), meant.end(), same))
    return;
  doubtful_.insert(own->name);
  problems_.push_back(fmt::format("--{} is given twice: give it once", own->name));
}

std::vector<std::string> Translator::translate(std::span<const std::string> words) {
  for (size_t i = 0; i < words.size();) {
    const Word word = names_option(words[i]) ? read_word(words, i) : Word();
    if (names_option(words[i])) add_given(word.option);
    i += word.words;
  }
  std::vector<std::string> result;
  for (size_t i = 0; i < words.size();) {
    if (!names_option(words[i])) {
      result.push_back(words[i++]);
      continue;
    }
    const Word word = read_word(words, i);
    if (word.lacks_value && foreign_option(word.option.name)->otherwise.kind != ForeignFate::Kind::Advice) {
      problems_.push_back(fmt::format("--{} needs a value", word.option.name));
      i += word.words;
      continue;
    }
    const std::optional<std::vector<GivenOption>> own = take(word.option, "");
    if (!own) {
      // The values of an unknown option are words of their own.
      const size_t kept = find_own(word.option.name) != nullptr ? word.words : 1;
      for (size_t j = 0; j < kept; ++j) result.push_back(words[i + j]);
      i += kept;
      continue;
    }
    for (const GivenOption& option : *own) {
      result.push_back("--" + option.name);
      const Option* found = find_own(option.name);
      if (!is_flag(*found)) result.insert(result.end(), option.values.begin(), option.values.end());
    }
    i += word.words;
  }
  return result;
}

void Translator::note(std::string text) {
  if (std::find(notes_.begin(), notes_.end(), text) == notes_.end()) notes_.push_back(std::move(text));
}

bool Translator::is_shadowed(const ForeignFate& fate) const {
  return std::any_of(fate.unless.begin(), fate.unless.end(), [&](const std::string& other) {
    const size_t equals = other.find('=');
    if (equals == std::string::npos) return names_.count(other) > 0;
    const auto given = own_values_.find(other.substr(0, equals));
    return given != own_values_.end() && given->second.size() == 1 &&
           folded(given->second.front()) == folded(other.substr(equals + 1));
  });
}

// The own options in the text of a fate, with the given values; nullopt if the command lacks one of them.
std::optional<std::vector<GivenOption>> Translator::own_options(const ForeignFate& fate,
                                                                const GivenOption& option) const {
  std::vector<GivenOption> result;
  std::istringstream text(fate.text);
  for (std::string word; text >> word;) {
    if (names_option(word))
      result.push_back({word.substr(2), {}});
    else if (word == kValues)
      result.back().values = option.values;
    else
      result.back().values.push_back(word);
  }
  for (GivenOption& own : result) {
    const Option* found = own_.find(own.name);
    if (found == nullptr) return std::nullopt;
    if (is_flag(*found)) own.values = {"true"};
  }
  return result;
}

// Drops options that are given with the same value already; another value is a problem.
std::vector<GivenOption> Translator::without_repeated(std::vector<GivenOption> options,
                                                      const GivenOption& given, const std::string& place) {
  std::vector<GivenOption> fresh;
  for (GivenOption& option : options) {
    const auto direct = own_values_.find(option.name);
    const bool is_direct = direct != own_values_.end() && option.name != given.name;
    const auto before = is_direct ? direct : translated_.find(option.name);
    const bool repeated = is_direct || before != translated_.end();
    if (!repeated) {
      translated_.emplace(option.name, option.values);
      spellings_.emplace(option.name, "--" + given.name);
      fresh.push_back(std::move(option));
    } else if (before->second != option.values) {
      doubtful_.insert(option.name);
      const std::string other = is_direct ? "" : fmt::format(" by {}", spellings_[option.name]);
      problems_.push_back(fmt::format("{}{} is {} here, but {} is given{}: leave one of them out", place,
                                      spelled(given.name, given.values), spelled(option.name, option.values),
                                      spelled(option.name, before->second), other));
    }
  }
  return fresh;
}

std::optional<std::vector<GivenOption>> Translator::take(const GivenOption& option,
                                                         const std::string& place) {
  using Kind = ForeignFate::Kind;
  const ForeignOption* foreign = foreign_option(option.name);
  const Option* own = find_own(option.name);
  if (foreign == nullptr || (own != nullptr && foreign->values.empty())) return std::nullopt;
  // One value for each layer or module, all the same, is a single value.
  const std::vector<std::string>& all = option.values;
  const bool alike =
      all.size() > 1 && std::all_of(all.begin(), all.end(), [&](const auto& one) { return one == all[0]; });
  if (own != nullptr && !is_list(*own) && alike)
    return take({option.name, {all[0]}}, place).value_or(std::vector<GivenOption>{{own->name, {all[0]}}});
  const ForeignFate& fate = foreign->fate(option.values);
  if (own == nullptr && is_false_flag(option)) return std::vector<GivenOption>();
  if (own == nullptr || fate.kind != Kind::Unlisted) program_ = foreign->program;
  const bool is_set = foreign->words != 0 || (option.values.size() == 1 && option.values.front() == "true");
  std::vector<GivenOption> none;
  switch (fate.kind) {
    case Kind::Unlisted:
      if (own != nullptr) return std::nullopt;
      problems_.push_back(fmt::format("{}{} is not known: give one of {}", place,
                                      spelled(option.name, option.values), known_values(*foreign)));
      return none;
    case Kind::Advice:
      return std::nullopt;
    case Kind::Refused:
      if (is_shadowed(fate)) {
        note(fmt::format("{}{} has no effect: {}", place, spelled(option.name, option.values), fate.then));
        return none;
      }
      problems_.push_back(fmt::format("{}{} is not available in this version of Trifold: {}", place,
                                      spelled(option.name, option.values), fate.text));
      if (own != nullptr) doubtful_.insert(own->name);
      return none;
    case Kind::Always:
    case Kind::Nothing:
      if (is_set && trains_or_plans())
        note(fmt::format("{}{} has no effect: {}", place, spelled(option.name, option.values), fate.text));
      else
        problems_.push_back(
            fmt::format("{}--{} has no effect: {}: leave it out", place, option.name, fate.text));
      return none;
    case Kind::Ours: {
      if (!is_set) {
        problems_.push_back(fmt::format("{}--{} is a flag, but '{}' is given: leave it out", place,
                                        option.name, printable(option.values.front())));
        return none;
      }
      if (is_shadowed(fate)) {
        note(fmt::format("{}{} has no effect: {}", place, spelled(option.name, option.values), fate.then));
        return none;
      }
      std::optional<std::vector<GivenOption>> options = own_options(fate, option);
      if (!options) return std::nullopt;
      return without_repeated(std::move(*options), option, place);
    }
  }
  return std::nullopt;
}

}  // namespace trifold
