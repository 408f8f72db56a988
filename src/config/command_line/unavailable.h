// Options that people know from Megatron-LM, or from Trifold's plans, and that this version does not have.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trifold {

// A sentence about the option `name` (canonical spelling, without "--"), or nullopt when it is not one of
// them:
// "--bf16 is not available in this version of Trifold", and what to do instead where there is something.
std::optional<std::string> unavailable(std::string_view name);

}  // namespace trifold
