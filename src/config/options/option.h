// Option is one option of a command, bound to the field of the configuration it sets; OptionTable is the list of a
// command's options in the order of its help. Parsing, help, completion, --print-config, JSON and range checks all read
// this one table, so an option is known to all of them or to none.
//
// A table points into the configuration it was made for and must not outlive it.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "config/fields/named.h"
#include "config/fields/spelling.h"
#include "config/options/file_use.h"
#include "config/options/problem.h"
#include "config/options/rule.h"

namespace trifold {

// A type with its own text form: an enum with names (config/fields/named.h), or a value (config/fields/values.h). A
// numeric type has kBounds, its valid values in words: "at least 1".
template <class T>
concept HasText = HasNames<T> || requires(const T& value, std::string_view word) {
  { T::parse(word) } -> std::same_as<T>;
  { value.text() } -> std::same_as<std::string>;
};

// A field of such a type: a single value, optional, or a list.
class ValueField {
 public:
  template <HasText T>
  ValueField(T* field) : field_(field), type_(&kType<T, T>) {}  // NOLINT: as the other fields
  template <HasText T>
  ValueField(std::optional<T>* field) : field_(field), type_(&kType<T, std::optional<T>>) {}  // NOLINT
  template <HasText T>
  ValueField(std::vector<T>* field) : field_(field), type_(&kType<T, std::vector<T>>) {}  // NOLINT

  // Sets the field from exactly one word, or from any number for a list. Throws Error(BadInput) for a word that is not
  // a value of the type.
  void set(std::span<const std::string> words) const { type_->set(field_, words); }
  std::vector<std::string> words() const { return type_->words(field_); }  // empty: unset
  std::vector<std::string> names() const { return type_->names(); }        // empty: any text may be a value
  std::string_view bounds() const { return type_->bounds; }                // T::kBounds, if the type has it
  bool is_list() const { return type_->list; }

 private:
  struct Type {
    void (*set)(void* field, std::span<const std::string> words);
    std::vector<std::string> (*words)(const void* field);
    std::vector<std::string> (*names)();
    std::string_view bounds;
    bool list;
  };
  template <HasText T, class Holder>
  static const Type kType;

  void* field_;
  const Type* type_;
};

// A field; its type decides which texts are accepted. An optional field may stay unset.
using Field = std::variant<bool*, int*, int64_t*, uint64_t*, double*, std::string*, std::vector<std::string>*,
                           std::optional<int>*, std::optional<int64_t>*, std::optional<double>*,
                           std::optional<std::string>*, ValueField>;

// The values that an option accepts; `above` and `below` exclude the bound itself.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool above = false;
  bool below = false;
};

// A former name of an option. Before the version `rejected_from` it works, with a note that gives the new name; from
// that version on it is rejected with the same advice. Help and completion leave it out.
struct OldSpelling {
  std::string name;
  std::string rejected_from;  // "0.3.0"
};

struct Option {
  std::string name;   // canonical, with hyphens, without "--"
  std::string group;  // heading in --help
  std::string help;   // one sentence, without the default
  Field field;
  std::vector<std::string> aliases = {};        // other spellings
  std::vector<OldSpelling> old_spellings = {};  // names before a renaming
  std::string argument = "";                    // the value's name in --help: N, X, FILE; empty for a flag
  std::vector<std::string> allowed = {};        // the names of a choice; empty: anything
  std::vector<std::string> suggested = {};      // offered by completion; other text is possible too
  std::string when_absent = "";                 // the value or behaviour while an optional field is unset
  Range bounds = {};
  std::string ending = "";   // ending of the only file format that is written, such as ".svg"; empty: any
  std::string instead = "";  // an option that may be given instead of a required one
  bool required = false;
  FileUse use = FileUse::None;         // None: names no files; else completed with file names
  std::vector<OutputMark> marks = {};  // the formats that the command writes and recognises
  bool local = false;                  // concerns a rank's host (paths, threads): may differ between ranks
  bool common = false;      // local, but given on all ranks or on none: it decides what the ranks do together
  bool incidental = false;  // concerns where and how a run executes, not what it computes
  std::vector<Rule> rules = {};

  // Builders, used as table.add(...).range(1, 10).also("x").
  Option& need(std::string other = "");            // required, or `other` must be given instead
  Option& range(double low, double high);          // low <= value <= high
  Option& positive();                              // value > 0
  Option& at_least(double low);                    // value >= low
  Option& fraction();                              // 0 <= value < 1
  Option& one_of(std::vector<std::string> names);  // a choice of these names; not needed for an enum
  // The option names files; `file_use` says what the command does with them, so that run/command_files.h protects
  // inputs.
  Option& reads(std::string what);                                    // FileUse::Read
  Option& writes(std::string what, std::vector<OutputMark> formats);  // FileUse::Written
  Option& names(std::string what, FileUse file_use, std::vector<OutputMark> formats = {});
  Option& written_as(std::string end);              // ending
  Option& suggest(std::vector<std::string> names);  // suggested
  Option& optional();                               // undoes `need`
  Option& also(std::string alias);                  // another spelling
  Option& absent(std::string text);                 // when_absent
  Option& takes(std::string what);                  // argument
  Option& of_host();                                // local
  Option& of_all_hosts();                           // local and common
  Option& of_execution();                           // incidental

  // Adds to old_spellings.
  Option& formerly(std::string old_name, std::string rejected_from);

  // Builders of rules (rule.h). `because` ends the description of the mistake; `remedy` replaces the usual remedy.
  Option& needs(When other, std::string_view because = {}, std::string_view remedy = {});
  Option& excludes(When other, std::string_view because = {}, std::string_view remedy = {});
  Option& only_with(When other, std::string_view because = {}, std::string_view remedy = {});
  Option& no_effect_with(When other, std::string_view because = {}, std::string_view remedy = {});
  Option& compares(Relation relation, const char* other, std::string_view because = {},
                   std::string_view remedy = {});
  // The next four refine the last rule: it applies only to these values of the option ("each", "a|b"), ...
  Option& only_for(std::string_view values);
  Option& provided(When other);  // ... only if this holds, ...
  Option& unless(When other);    // ... not if this holds, ...
  Option& as_note();             // ... and breaking it is a note, not an error.
};

class OptionTable {
 public:
  // Starts a group; the options added next belong to it.
  void group(std::string title) { group_ = std::move(title); }
  // Adds an option; the reference is valid until the next add.
  Option& add(std::string name, Field field, std::string help);

  std::span<const Option> options() const { return options_; }
  // The option of that name, for changes in this table. Throws Error if there is none.
  Option& change(std::string_view name);
  // Marks outputs as unused: for a command that has the options of another one, but writes none of its files.
  void forget_outputs();
  // The option with this name, alias or old spelling, where underscores equal hyphens; null if there is none.
  const Option* find(std::string_view name) const;

 private:
  std::string group_;
  std::vector<Option> options_;
};

// The old spelling of `option` that `name` is; null if it is none.
const OldSpelling* old_spelling(const Option& option, std::string_view name);

bool is_flag(const Option& option);
bool is_list(const Option& option);

// Sets the field from the words given for it (one word unless it is a list). Throws Error(BadInput) that names the
// option and the word and says what would be right. Ranges are checked by range_problem instead.
void set_value(const Option& option, std::span<const std::string> words);

// The field as words from which set_value restores exactly the same value; nullopt if it is unset.
std::optional<std::vector<std::string>> value_words(const Option& option);
// The words of value_words as one text, for messages; empty if the field is unset.
std::string value_text(const Option& option);

// Whether two options of one type have the same value.
bool same_value(const Option& left, const Option& right);

// The mistake in the field's value taken alone: out of range, not one of the choices, or required and missing.
std::optional<Problem> range_problem(const Option& option);

// "at least 1", "above 0", "at least 0 and below 1": the bounds in words; empty when there are none.
std::string describe(const Range& range, bool whole);

// The bounds of an option in words, for its help. Upper bounds of 65536 and more, which only keep products of sizes
// from overflowing, are left out; the message about a larger value has them.
std::string described_bounds(const Option& option);

// ---- implementation ----

namespace value_field {

[[noreturn]] void refuse_name(std::string_view word, std::span<const std::string> names);

template <HasNames T>
std::vector<std::string> names_of() {
  std::vector<std::string> names;
  for (const Named<T>& entry : Names<T>::kAll) names.emplace_back(entry.name);
  return names;
}

template <HasText T>
T parse(std::string_view word) {
  if constexpr (HasNames<T>) {
    if (const auto value = value_named<T>(word)) return *value;
    refuse_name(word, names_of<T>());
  } else {
    return T::parse(word);
  }
}

template <HasText T>
std::string text(const T& value) {
  if constexpr (HasNames<T>)
    return std::string(name_of(value));
  else
    return value.text();
}

// Reads and writes the value of a field: single, optional or a list.
template <HasText T, class Holder>
struct Access {
  static constexpr bool kList = std::is_same_v<Holder, std::vector<T>>;

  static void set(void* field, std::span<const std::string> words) {
    auto& holder = *static_cast<Holder*>(field);
    if constexpr (kList) {
      std::vector<T> values;
      for (const std::string& word : words) values.push_back(parse<T>(word));
      holder = std::move(values);
    } else {
      holder = parse<T>(words.front());
    }
  }
  static std::vector<std::string> words(const void* field) {
    const auto& holder = *static_cast<const Holder*>(field);
    std::vector<std::string> result;
    if constexpr (kList) {
      for (const T& value : holder) result.push_back(text(value));
    } else if constexpr (std::is_same_v<Holder, std::optional<T>>) {
      if (holder) result.push_back(text(*holder));
    } else {
      result.push_back(text(holder));
    }
    return result;
  }
  static std::vector<std::string> names() {
    if constexpr (HasNames<T>)
      return names_of<T>();
    else
      return {};
  }
};

template <HasText T>
constexpr std::string_view bounds_of() {
  if constexpr (requires { T::kBounds; })
    return T::kBounds;
  else
    return {};
}

}  // namespace value_field

template <HasText T, class Holder>
const ValueField::Type ValueField::kType{value_field::Access<T, Holder>::set,
                                         value_field::Access<T, Holder>::words,
                                         value_field::Access<T, Holder>::names, value_field::bounds_of<T>(),
                                         value_field::Access<T, Holder>::kList};

}  // namespace trifold
