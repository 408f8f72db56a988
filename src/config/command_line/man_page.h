// The manual page, generated from the table of commands and their options, so that it always matches --help.
#pragma once

#include <string>

namespace trifold {

// trifold(1) in the man macros of roff: every command with its options, exit statuses, environment and
// files. ASCII only.
std::string man_page();

}  // namespace trifold
