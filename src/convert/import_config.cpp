#include "convert/import_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>

#include "config/command_line/config_file.h"
#include "config/commands/option_tables.h"
#include "config/fields/number.h"
#include "core/error.h"
#include "core/input_file.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "files/yaml.h"

namespace trifold {
namespace {

constexpr int64_t kMostConfigBytes = 1 << 20;
constexpr JsonLimits kForeignFileLimits{kMostConfigBytes, 32, 100'000};
constexpr std::string_view kAuto = "auto";  // Hugging Face's Trainer fills such values in

using Keys = std::map<std::string, std::vector<std::string>>;  // "fp16.enabled" -> its words

std::string scalar_text(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return format_double(value.get<double>());
  return value.is_null() ? "" : json_text(value);
}

// Adds the keys of an object and of its sections; lists become several words.
void flatten(const nlohmann::json& value, const std::string& name, Keys& keys) {
  if (value.is_object()) {
    for (const auto& item : value.items())
      flatten(item.value(), name.empty() ? item.key() : name + "." + item.key(), keys);
  } else if (value.is_array()) {
    for (const nlohmann::json& item : value) keys[name].push_back(scalar_text(item));
  } else if (const std::string text = scalar_text(value); !text.empty()) {
    keys[name] = {text};
  }
}

nlohmann::json read_document(const std::string& file) {
  const std::string text = read_input_file(file, kMostConfigBytes);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) bad_input("{} is empty", file);
  nlohmann::json document =
      text[first] == '{' ? parse_json(text, file, kForeignFileLimits) : parse_yaml(text, file);
  if (!document.is_object())
    bad_input("{} has no keys: DeepSpeed's JSON or accelerate's YAML is expected", file);
  return document;
}

const ForeignFile& program_of(const Keys& keys, const std::string& file) {
  const ForeignFile* best = nullptr;
  std::ptrdiff_t most = 0;
  for (const ForeignFile& one : foreign_files()) {
    const auto known = std::count_if(keys.begin(), keys.end(), [&](const auto& key) {
      return find_foreign(one.keys, key.first) != nullptr;
    });
    if (known > most) best = &one;
    most = std::max(most, known);
  }
  if (best == nullptr) bad_input("{} has no key of DeepSpeed's JSON or accelerate's FSDP YAML", file);
  return *best;
}

class FileImporter {
 public:
  FileImporter(const Keys& keys, const ForeignFile& program, const std::string& file)
      : keys_(keys), program_(program), file_(file) {
    result_.program = program.program;
  }

  ImportedConfig run() {
    for (const auto& [key, words] : keys_) take(key, words);
    for (const ForeignOption& entry : program_.keys)
      if (entry.absent.kind != ForeignFate::Kind::Unlisted && is_missing(entry) && applies(entry) &&
          entry_for(entry.name) == &entry)
        act(entry.name, {}, entry.absent, "not given");
    return std::move(result_);
  }

 private:
  void remark(const std::string& key, std::string_view value, const std::string& why) {
    result_.remarks.push_back(fmt::format("{} {}: {}", printable(key), printable(value, 60), why));
  }

  void take(const std::string& key, const std::vector<std::string>& words) {
    const std::string value = fmt::format("{}", fmt::join(words, " "));
    const ForeignOption* entry = entry_for(key);
    if (entry == nullptr) return remark(key, value, fmt::format("no key of {} known here", program_.program));
    const ForeignFate& fate = entry->fate(words);
    if (value == kAuto && fate.kind == ForeignFate::Kind::Ours)
      return remark(key, value, "filled in by Hugging Face's Trainer: give " + first_option(fate));
    if (!applies(*entry)) return remark(key, value, entry->otherwise_then);
    if (std::any_of(fate.unless.begin(), fate.unless.end(),
                    [&](const std::string& other) { return keys_.count(other) > 0; }))
      return remark(key, value, fate.then);
    act(key, words, fate, value);
  }

  static std::string first_option(const ForeignFate& fate) {
    return fate.text.substr(0, fate.text.find(' '));
  }

  // The first entry of the key whose conditions hold, or else the last one; null if the key is unknown.
  const ForeignOption* entry_for(const std::string& key) const {
    const ForeignOption* entry = find_foreign(program_.keys, key);
    if (entry == nullptr) return nullptr;
    const ForeignOption* const end = program_.keys.data() + program_.keys.size();
    while (!applies(*entry) && entry + 1 != end && (entry + 1)->name == key) ++entry;
    return entry;
  }

  bool holds(const ForeignCondition& condition) const {
    const auto found = keys_.find(condition.key);
    const std::string value = found == keys_.end() ? ForeignCondition::kAbsent
                                                   : folded(fmt::format("{}", fmt::join(found->second, " ")));
    const auto& values = condition.values;
    return (std::find(values.begin(), values.end(), value) != values.end()) != condition.negated;
  }

  bool applies(const ForeignOption& entry) const {
    return std::all_of(entry.when.begin(), entry.when.end(),
                       [&](const ForeignCondition& condition) { return holds(condition); });
  }

  // Whether the file lacks the key but, unless conditions decide, has its section: "optimizer" of
  // optimizer.params.eps.
  bool is_missing(const ForeignOption& entry) const {
    const std::string& key = entry.name;
    if (keys_.count(key) > 0) return false;
    const size_t dot = key.find('.');
    if (dot == std::string::npos || !entry.when.empty()) return true;
    const std::string section = key.substr(0, dot + 1);
    const auto next = keys_.lower_bound(section);
    return next != keys_.end() && next->first.starts_with(section);
  }

  void act(const std::string& key, const std::vector<std::string>& words, const ForeignFate& fate,
           const std::string& value) {
    switch (fate.kind) {
      case ForeignFate::Kind::Ours:
        for (GivenOption& option : options_in(fate.text, words, key)) set(std::move(option), key);
        return;
      case ForeignFate::Kind::Refused:
        return remark(key, value, "not available: " + fate.text);
      case ForeignFate::Kind::Unlisted:
        return remark(key, value, "not available: its value is not known here");
      default:
        return remark(key, value, fate.text);
    }
  }

  std::vector<GivenOption> options_in(const std::string& text, const std::vector<std::string>& words,
                                      const std::string& key) const {
    std::vector<GivenOption> options;
    for (std::string_view rest = text; !rest.empty();) {
      const std::string_view word = rest.substr(0, rest.find(' '));
      rest.remove_prefix(std::min(word.size() + 1, rest.size()));
      if (word.starts_with("--"))
        options.push_back({std::string(word.substr(2)), {}});
      else if (const size_t times = word.find('*'); times != std::string_view::npos)
        options.back().values = {product(
            word.substr(0, times) == "{}" ? word_at(words, 0, key) : std::string(word.substr(0, times)),
            std::string(word.substr(times + 1)), key)};
      else if (word == "{}")
        options.back().values = words;
      else if (word.size() == 3 && word.front() == '{')
        options.back().values = {word_at(words, static_cast<size_t>(word[1] - '0'), key)};
      else
        options.back().values = {std::string(word)};
    }
    return options;
  }

  std::string word_at(const std::vector<std::string>& words, size_t index, const std::string& key) const {
    if (index < words.size()) return words[index];
    bad_input("{}: {} has {} values, but {} are needed", file_, key, words.size(), index + 1);
  }

  // The value `number` of `key` times the value of the key `other`.
  std::string product(const std::string& number, const std::string& other, const std::string& key) const {
    constexpr int kDigits = 15;  // without the last digits of a product of decimal fractions
    const auto value_of = [&](const std::string& text, const std::string& name) {
      try {
        return parse_double(text);
      } catch (const Error& error) {
        bad_input("{}: {}: {}", file_, printable(name), error.what());
      }
    };
    const double value = value_of(number, key) * value_of(word_at(keys_.at(other), 0, other), other);
    return fmt::format("{:.{}g}", value, kDigits);
  }

  void set(GivenOption option, const std::string& key) {
    const Option* own = table_.find(option.name);
    if (own == nullptr) fail("there is no option --{}", option.name);
    if (is_flag(*own)) option.values = {"true"};
    try {
      set_value(*own, option.values);
    } catch (const Error& error) {
      bad_input("{}: {}: {}", file_, printable(key), error.what());
    }
    const auto same = std::find_if(result_.options.begin(), result_.options.end(),
                                   [&](const GivenOption& other) { return other.name == option.name; });
    if (same == result_.options.end())
      result_.options.push_back(std::move(option));
    else if (same->values != option.values)
      bad_input("{}: {} means --{} {}, but another key means --{} {}", file_, printable(key), option.name,
                fmt::join(option.values, " "), option.name, fmt::join(same->values, " "));
  }

  const Keys& keys_;
  const ForeignFile& program_;
  const std::string& file_;
  PretrainConfig config_;
  const OptionTable table_ = options_of(config_);
  ImportedConfig result_;
};

bool is_plain(const std::string& word) {
  return !word.empty() && std::all_of(word.begin(), word.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("-_./=:,+@%").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

std::string shell_word(const std::string& word) {
  if (is_plain(word)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

bool is_set_flag(const GivenOption& option) { return option.values == std::vector<std::string>{"true"}; }

}  // namespace

ImportedConfig import_config(const std::string& file) {
  Keys keys;
  flatten(read_document(file), "", keys);
  return FileImporter(keys, program_of(keys, file), file).run();
}

std::string as_words(const ImportedConfig& config) {
  std::vector<std::string> words;
  for (const GivenOption& option : config.options) {
    words.push_back("--" + option.name);
    if (!is_set_flag(option))
      for (const std::string& value : option.values) words.push_back(shell_word(value));
  }
  return fmt::format("{}", fmt::join(words, " "));
}

std::string as_config_file(const ImportedConfig& config, const std::string& file) {
  std::string text = fmt::format("# {} of {}\n", printable(file), config.program);
  for (const GivenOption& option : config.options)
    text += fmt::format("{} = {}\n", option.name, join_value(option.values, option.values.size() > 1));
  for (const std::string& remark : config.remarks) text += "# " + remark + "\n";
  return text;
}

}  // namespace trifold
