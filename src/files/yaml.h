// Reads YAML with libyaml.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace trifold {

// The only document of `text` as JSON; all scalars are strings, and an empty value is "". BadInput "<name>:<line>: ..."
// for invalid YAML, for keys that are not scalars or appear twice, and for tags and merge keys. After expanding
// aliases, nesting is limited to 100 levels and the content to a million values.
nlohmann::json parse_yaml(std::string_view text, const std::string& name);

}  // namespace trifold
