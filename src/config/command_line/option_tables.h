// The options of each command, bound to the fields of its configuration (commands.h), and those of a model:
// the one place where option names, spellings and help texts are written down. Defaults are those of the
// structs in config.h.
#pragma once

#include "config/command_line/commands.h"

namespace trifold {

// Only those of a model, and what it ends in: what a checkpoint remembers of it.
OptionTable options_of(ModelConfig& config);

}  // namespace trifold
