#include "train/sampling/stop_texts.h"

#include <algorithm>
#include <utility>

namespace trifold {

StopTexts::StopTexts(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase(stops_, std::string());
}

std::string StopTexts::add(std::string_view piece) {
  if (found_) return {};
  held_ += piece;
  size_t first = std::string::npos;
  for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
  if (first != std::string::npos) {
    found_ = true;
    held_.resize(first);
    return std::exchange(held_, {});
  }
  // The longest end of the text with which a stop text begins.
  size_t kept = 0;
  for (const std::string& stop : stops_)
    for (size_t size = std::min(stop.size() - 1, held_.size()); size > kept; --size)
      if (std::string_view(held_).substr(held_.size() - size) == std::string_view(stop).substr(0, size))
        kept = size;
  const size_t given = held_.size() - kept;
  std::string text = held_.substr(0, given);
  held_.erase(0, given);
  return text;
}

std::string StopTexts::finish() { return std::exchange(held_, {}); }

}  // namespace trifold
