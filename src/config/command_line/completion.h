// Shell completion.
#pragma once

#include <string>

namespace trifold {

// A bash script that completes the commands, their options, the allowed values of choices and file names. Load it with:
// source <(trifold completion bash)
std::string bash_completion();

}  // namespace trifold
