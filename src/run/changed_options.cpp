#include "run/changed_options.h"

#include <fmt/format.h>

#include "config/fields/json.h"

namespace trifold {

namespace {

std::string value_text(const nlohmann::json& value) {
  if (value.is_null()) return "nothing";
  if (value.is_string()) return value.get<std::string>();
  return value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
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
    changes.push_back(fmt::format("--{} {}; the checkpoint's run had {}", option.name, value_text(*after),
                                  value_text(*before)));
  }
  return changes;
}

}  // namespace trifold
