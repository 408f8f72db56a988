// Normal forms of names, which may be spelled in several ways.
#pragma once

#include <string>
#include <string_view>

namespace trifold {

// `name` with underscores replaced by hyphens.
std::string hyphenated(std::string_view name);
// The form in which choices are compared: hyphenated and in lower case, because Megatron-LM itself mixes WSD and
// minus_sqrt.
std::string folded(std::string_view choice);

}  // namespace trifold
