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

// "when": "KEY=VALUE", and "then".
ForeignCondition read_condition(const JsonView& entry) {
  const std::string text = entry.at("when").text();
  const size_t equals = text.find('=');
  if (equals == std::string::npos) entry.at("when").refuse("KEY=VALUE");
  return {text.substr(0, equals), folded(text.substr(equals + 1)), entry.at("then").text()};
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
  if (entry.has("when")) option.when = read_condition(entry);
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

// Sorts by name; BadInput if a name is listed twice.
std::vector<ForeignOption> sorted(std::vector<ForeignOption> options) {
  const auto by_name = [](const ForeignOption& left, const ForeignOption& right) {
    return left.name < right.name;
  };
  std::sort(options.begin(), options.end(), by_name);
  const auto twice =
      std::adjacent_find(options.begin(), options.end(),
                         [](const auto& left, const auto& right) { return left.name == right.name; });
  if (twice != options.end()) bad_input("foreign options: '{}' is listed twice", twice->name);
  return options;
}

}  // namespace

std::vector<ForeignOption> parse_foreign_options(std::string_view json) {
  const nlohmann::json document = parse_json(json, "foreign options");
  std::vector<ForeignOption> options;
  JsonView(document, "foreign options").members([&](const std::string&, const JsonView& subject) {
    subject.each([&](const JsonView& entry) { add_options(entry, options); });
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
