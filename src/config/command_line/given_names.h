// Messages name own options; a user who gave another program's option in place of one learns which it is.
#pragma once

#include <map>
#include <string>

namespace trifold {

// `message`, followed by "(--tokenizer-model was given as --vocab-file)" for each own option that it names and that
// `given_as`, by name, shows as given by another spelling, unless the message has that spelling too.
std::string with_given_names(std::string message, const std::map<std::string, std::string>& given_as);

}  // namespace trifold
