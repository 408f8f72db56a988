#include "config/foreign/foreign_options.h"

#include <algorithm>

#include "config/fields/spelling.h"
#include "core/error.h"
#include "core/read_json.h"

namespace trifold {
namespace {

constexpr std::string_view kTable =
#include "config/foreign/options.inc"
    ;

constexpr std::string_view kFileTable =
#include "config/foreign/config_files.inc"
    ;

struct NamedKind {
  const char* key;
  ForeignFate::Kind kind;
};
constexpr NamedKind kKinds[] = {{"set", ForeignFate::Kind::Ours},
                                {"always", ForeignFate::Kind::Always},
                                {"nothing", ForeignFate::Kind::Nothing},
                                {"refused", ForeignFate::Kind::Refused},
                                {"advice", ForeignFate::Kind::Advice}};

ForeignFate read_fate(const JsonView& entry) {
  ForeignFate fate;
  for (const NamedKind& named : kKinds) {
    if (!entry.has(named.key)) continue;
    if (fate.kind != ForeignFate::Kind::Unlisted) entry.refuse("one fate");
    fate.kind = named.kind;
    fate.text = entry.at(named.key).text();
  }
  fate.ours = entry.text("ours", "");
  if (!fate.ours.empty() && fate.kind == ForeignFate::Kind::Unlisted) fate.kind = ForeignFate::Kind::Advice;
  if (entry.has("unless")) {
    entry.at("unless").each([&](const JsonView& name) { fate.unless.push_back(name.text()); });
    fate.then = entry.at("then").text();
  }
  return fate;
}

std::vector<std::string> split_at(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts;
  for (size_t end = text.find(separator); end != std::string_view::npos; end = text.find(separator)) {
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end + separator.size());
  }
  parts.emplace_back(text);
  return parts;
}

// "KEY=A|B and OTHER!=C"
std::vector<ForeignCondition> read_conditions(const JsonView& when) {
  std::vector<ForeignCondition> conditions;
  for (const std::string& text : split_at(when.text(), " and ")) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals < 2) when.refuse("KEY=VALUE");
    ForeignCondition condition;
    condition.negated = text[equals - 1] == '!';
    condition.key = text.substr(0, condition.negated ? equals - 1 : equals);
    for (const std::string& value : split_at(std::string_view(text).substr(equals + 1), "|"))
      condition.values.push_back(folded(value));
    conditions.push_back(std::move(condition));
  }
  return conditions;
}

ForeignOption read_option(const JsonView& entry) {
  ForeignOption option;
  if (entry.has("words"))
    option.words = static_cast<int>(entry.at("words").integer(ForeignOption::kAnyNumber, 1));
  option.otherwise = read_fate(entry);
  if (entry.has("values"))
    entry.at("values").members([&](const std::string& value, const JsonView& fate) {
      ForeignFate read = read_fate(fate);
      if (read.unless.empty()) {  // the entry's
        read.unless = option.otherwise.unless;
        read.then = option.otherwise.then;
      }
      option.values.emplace(folded(value), std::move(read));
    });
  if (entry.has("absent")) option.absent = read_fate(entry.at("absent"));
  if (entry.has("when")) {
    option.when = read_conditions(entry.at("when"));
    option.otherwise_then = entry.text("then", "");
  }
  if (option.values.empty() && option.otherwise.kind == ForeignFate::Kind::Unlisted)
    entry.refuse("an entry with a fate");
  return option;
}

// Adds a copy of the entry's option for each of its names.
void add_options(const JsonView& entry, std::vector<ForeignOption>& options) {
  ForeignOption option = read_option(entry);
  const JsonView names = entry.at("name");
  const auto add = [&](const JsonView& name) {
    option.name = name.text();
    options.push_back(option);
  };
  if (names.value().is_array())
    names.each(add);
  else
    add(names);
}

}  // namespace

const ForeignFate& ForeignOption::fate(std::span<const std::string> given) const {
  const auto listed = given.size() == 1 ? values.find(folded(given.front())) : values.end();
  return listed == values.end() ? otherwise : listed->second;
}

namespace {

// Sorts by name; BadInput if a name is listed twice without conditions that tell the entries apart.
std::vector<ForeignOption> sorted(std::vector<ForeignOption> options) {
  const auto by_name = [](const ForeignOption& left, const ForeignOption& right) {
    return left.name < right.name;
  };
  std::stable_sort(options.begin(), options.end(), by_name);
  const auto twice =
      std::adjacent_find(options.begin(), options.end(), [](const auto& left, const auto& right) {
        return left.name == right.name && (left.when.empty() || right.when.empty());
      });
  if (twice != options.end()) bad_input("foreign options: '{}' is listed twice", twice->name);
  return options;
}

}  // namespace

std::vector<ForeignOption> parse_foreign_options(std::string_view json) {
  const nlohmann::json document = parse_json(json, "foreign options");
  std::vector<ForeignOption> options;
  JsonView(document, "foreign options").members([&](const std::string& name, const JsonView& subject) {
    const size_t first = options.size();
    subject.each([&](const JsonView& entry) { add_options(entry, options); });
    for (size_t i = first; i < options.size(); ++i) options[i].program = name.substr(0, name.find(':'));
  });
  return sorted(std::move(options));
}

const std::vector<ForeignOption>& foreign_options() {
  static const std::vector<ForeignOption> kOptions = parse_foreign_options(kTable);
  return kOptions;
}

const std::vector<ForeignFile>& foreign_files() {
  static const std::vector<ForeignFile> kFiles = [] {
    const nlohmann::json document = parse_json(kFileTable, "foreign files");
    std::vector<ForeignFile> files;
    JsonView(document, "foreign files").members([&](const std::string& program, const JsonView& keys) {
      ForeignFile file;
      file.program = program;
      keys.each([&](const JsonView& entry) { add_options(entry, file.keys); });
      file.keys = sorted(std::move(file.keys));
      files.push_back(std::move(file));
    });
    return files;
  }();
  return kFiles;
}

const ForeignOption* find_foreign(const std::vector<ForeignOption>& options, std::string_view name) {
  const auto found = std::lower_bound(
      options.begin(), options.end(), name,
      [](const ForeignOption& option, std::string_view wanted) { return option.name < wanted; });
  return found == options.end() || found->name != name ? nullptr : &*found;
}

const ForeignOption* foreign_option(std::string_view name) { return find_foreign(foreign_options(), name); }

}  // namespace trifold
