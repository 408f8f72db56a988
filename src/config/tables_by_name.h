// The option tables of commands that are known by name only.
#pragma once

#include <string_view>

#include "config/option_tables.h"
#include "core/function_ref.h"

namespace trifold {

// Calls `body` with the table of the command, bound to a configuration of defaults that lives during the
// call. Throws Error when the command has no options (`completion`) or does not exist.
void with_default_table(std::string_view command, FunctionRef<void(const OptionTable&)> body);

}  // namespace trifold
