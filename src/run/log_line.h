// How lines of a run's log (--log-json) are recognised: by a run, which appends to no other file, and by commands that
// look for logs.
#pragma once

#include <string_view>

namespace trifold {

// Every line begins so.
inline constexpr std::string_view kLogLineBegin = "{\"step\":";

// Whether `bytes` may be the beginning of a line. A kill may cut a line anywhere, so `bytes` may be shorter than
// kLogLineBegin, and empty.
inline bool begins_like_log_line(std::string_view bytes) {
  return kLogLineBegin.starts_with(bytes.substr(0, kLogLineBegin.size()));
}

}  // namespace trifold
