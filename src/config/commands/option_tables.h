// The options of each command, bound to the fields of its configuration (commands.h), and those of a model. This is the
// only place that defines option names, spellings and help texts. Defaults are those of the structs in config.h.
#pragma once

#include "config/commands/commands.h"

namespace trifold {

// The options of the model alone, including its head: the part of a configuration that a checkpoint stores.
OptionTable options_of(ModelConfig& config);

}  // namespace trifold
