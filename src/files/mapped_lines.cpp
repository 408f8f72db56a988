#include "files/mapped_lines.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace trifold {

namespace {

constexpr int64_t kReleasedAtOnce = int64_t{1} << 24;

}  // namespace

MappedLines::MappedLines(const MappedFile& file, std::string remedy, int64_t longest)
    : file_(file), remedy_(std::move(remedy)), longest_(longest) {}

std::optional<std::string_view> MappedLines::next() {
  if (at_ == file_.size()) return std::nullopt;
  if (at_ - released_ > kReleasedAtOnce) {
    file_.release(released_, at_);
    released_ = at_;
  }
  ++number_;
  const std::string_view rest = file_.text().substr(static_cast<size_t>(at_));
  const size_t end = rest.substr(0, static_cast<size_t>(longest_) + 1).find('\n');
  if (end == std::string_view::npos && std::ssize(rest) > longest_)
    bad_input("{}:{}: the line has more than {} bytes; {}", file_.path(), number_, longest_, remedy_);
  const std::string_view line = rest.substr(0, end);
  at_ += std::min(std::ssize(line) + 1, std::ssize(rest));
  return line;
}

}  // namespace trifold
