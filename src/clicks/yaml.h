// YAML as tools write it to describe data, read with libyaml.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace trifold {

// The only document of `text` as JSON; all scalars are strings, and an empty value is "". BadInput
// "<name>:<line>: ..." for text that is no YAML, and for keys that are no scalars or appear twice, tags and
// merge keys. With aliases expanded, nesting is limited to 100 levels and the content to a million values.
nlohmann::json parse_yaml(std::string_view text, const std::string& name);

}  // namespace trifold
