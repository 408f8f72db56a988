// Defaults of other programs that would train differently. A pasted line says nothing about options that it leaves at
// their defaults, so a note names the options whose defaults here are other ones.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "config/options/option.h"

namespace trifold {

// "Megatron-LM's defaults are other ones: ...", with the options of `table` that `origins`, by name, shows as not
// given; nullopt if there are none, or if `program` ("Megatron-LM") has no such defaults. `table` must have its
// defaults in these options.
std::optional<std::string> note_of_other_defaults(const std::string& program, const OptionTable& table,
                                                  const std::map<std::string, std::string>& origins);

}  // namespace trifold
