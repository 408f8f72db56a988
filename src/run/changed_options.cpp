#include "run/changed_options.h"

#include <fmt/format.h>

#include "config/commands/json.h"
#include "core/random.h"
#include "core/read_json.h"

namespace trifold {

namespace {

// The value as on the command line.
std::string value_text(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return json_text(value);
  std::string text;
  for (const nlohmann::json& item : value) text += (text.empty() ? "" : " ") + value_text(item);
  return text;
}

// Whether the option would be absent from a command line with this value.
bool is_absent(const nlohmann::json& value) {
  return value.is_null() || (value.is_boolean() && !value.get<bool>()) || (value.is_array() && value.empty());
}

std::string with_value(const Option& option, const nlohmann::json& value) {
  return value.is_boolean() ? "--" + option.name : fmt::format("--{} {}", option.name, value_text(value));
}

std::string change(const Option& option, const nlohmann::json& before, const nlohmann::json& after) {
  if (is_absent(after))
    return fmt::format("no --{}; the checkpoint's run had {}", option.name, with_value(option, before));
  return fmt::format("{}; the checkpoint's run had {}", with_value(option, after),
                     is_absent(before) ? "none" : value_text(before));
}

}  // namespace

std::vector<std::string> changed_options(const nlohmann::json& then, const nlohmann::json& now,
                                         const OptionTable& table,
                                         const std::function<bool(const Option&)>& counts) {
  std::vector<std::string> changes;
  if (!then.is_object()) return changes;
  for (const Option& option : table.options()) {
    if (option.incidental && !(counts && counts(option))) continue;
    const std::string key = json_key(option);
    const auto before = then.find(key);
    const auto after = now.find(key);
    if (before == then.end() || after == now.end() || *before == *after) continue;
    changes.push_back(change(option, *before, *after));
  }
  return changes;
}

std::string digest_of_options(const OptionTable& table, std::string_view more) {
  std::string text(more);
  for (const Option& option : table.options())
    if (!option.incidental) text += fmt::format("\n{} {}", option.name, value_text(option));
  const PhiloxKey hash = philox_key(text.size(), text);
  return fmt::format("{:08x}{:08x}", hash.hi, hash.lo);
}

}  // namespace trifold
