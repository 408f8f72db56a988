// The small part of YAML that tools write to describe data: maps and lists by indentation, plain and quoted
// scalars, flow lists and maps of scalars, comments, anchors (&name) and aliases (*name). No tags, no block
// scalars, no documents, no merge keys, no multi-line scalars.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace trifold {

// The content as JSON, all scalars as strings. BadInput "<name>:<line>: ..." for other YAML. Nesting is
// limited to 100 levels, and the content, with aliases expanded, to a million values.
nlohmann::json parse_simple_yaml(std::string_view text, const std::string& name);

}  // namespace trifold
