// The options of a resumed run that differ from those of the run that wrote its checkpoint.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "config/options/option.h"

namespace trifold {

// Those that decide results, a line each: "--lr 0.05; the checkpoint's run had 0.1". `then` and `now` are what
// to_json() made of the two configurations, `table` lists the options. Incidental ones are left out, but for
// those that `counts` names. An option that `then` does not know, as it is newer, is left out too.
std::vector<std::string> changed_options(const nlohmann::json& then, const nlohmann::json& now,
                                         const OptionTable& table,
                                         const std::function<bool(const Option&)>& counts = {});

}  // namespace trifold
