// Prints messages about a run. If the terminal has disappeared or the pipe is closed, the text is lost and the run
// continues; fmt::print would throw.
#pragma once

#include <cstdio>
#include <string_view>

namespace trifold::launch {

inline void say(std::FILE* out, std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), out) < text.size() || std::fflush(out) != 0)
    std::clearerr(out);
}

}  // namespace trifold::launch
