// The goodput of a planned run (plan/goodput/goodput.h) as lines and as JSON, for `trifold plan`.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "plan/goodput/goodput.h"

namespace trifold::launch {

std::vector<std::string> goodput_lines(const GoodputReport& report, const GoodputConfig& config);
// Times are in seconds, bytes of the whole checkpoint; shares of the time add up to 1 with the goodput.
nlohmann::ordered_json to_json(const GoodputReport& report);

}  // namespace trifold::launch
