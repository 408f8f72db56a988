// Factors of the learning rate and of weight decay by parameter: --lr-mult and --wd-mult give them for names that match
// patterns of the shell (* for any characters, ? for one, [01] for one of several). The last pattern that matches
// decides; a parameter that none matches has the factor 1.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/fields/config.h"

namespace trifold {

double factor_of(std::span<const ParamFactor> factors, const std::string& name);

// What the factors of both options match, a line each for a log: "--lr-mult *.bias=0.5: 24 parameters, the first
// block.0.norm.bias". BadInput if a pattern matches none of `names`, with the nearest names.
std::vector<std::string> matched_factors(const OptimizerConfig& config, std::span<const std::string> names);

}  // namespace trifold
