// Options that this version lacks: options of Megatron-LM and other programs, and options planned for Trifold.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trifold {

// A sentence about the option `name` (canonical spelling, without "--"): "--NAME is not available in this version of
// Trifold", with an alternative if there is one; nullopt for any other name.
std::optional<std::string> unavailable(std::string_view name);

// A sentence about the flag `name` if it requests what Trifold always does: "--NAME has no effect: ...".
std::optional<std::string> always_done(std::string_view name);

}  // namespace trifold
