// Compares the options of a resumed run with the options of the run that wrote its checkpoint.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/options/option.h"

namespace trifold {

// The changed options that affect results, a line each: "--lr 0.05; the checkpoint's run had 0.1". `then` and `now` are
// the two configurations as written by to_json(); `table` lists the options. Incidental options are left out unless
// `counts` returns true for them, and so are options that are newer than `then`.
std::vector<std::string> changed_options(const nlohmann::json& then, const nlohmann::json& now,
                                         const OptionTable& table,
                                         const std::function<bool(const Option&)>& counts = {});

// Digits that identify the options that affect results: equal for the same values, whatever the incidental options are.
// `more` is included.
std::string digest_of_options(const OptionTable& table, std::string_view more);

}  // namespace trifold
