#include "plan/memory_needs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/bytes_text.h"
#include "core/error.h"

namespace trifold {

namespace {

// Of the first `count` ranks.
template <class Iterator>
size_t sum_of_first(Iterator begin, const Iterator& end, size_t alike, size_t count) {
  size_t sum = 0;
  for (; begin != end && count > 0; ++begin) {
    const size_t taken = std::min(alike, count);
    sum += taken * *begin;
    count -= taken;
  }
  return sum;
}

}  // namespace

MemoryNeeds::MemoryNeeds(std::vector<size_t> bytes, size_t alike)
    : ascending_(std::move(bytes)), alike_(alike) {
  std::sort(ascending_.begin(), ascending_.end());
}

size_t MemoryNeeds::sum_of_most(size_t count) const {
  return sum_of_first(ascending_.rbegin(), ascending_.rend(), alike_, count);
}

size_t MemoryNeeds::sum_of_least(size_t count) const {
  return sum_of_first(ascending_.begin(), ascending_.end(), alike_, count);
}

void refuse_for_memory(size_t ranks, const std::string& needed, std::string_view where, size_t available,
                       size_t most, const std::string& parts, const std::string& remedy) {
  const char* const s = ranks == 1 ? "" : "s";
  bad_input("{} rank{} of this run need{} {} of memory {}, which has {}: up to {} a rank ({}); {}", ranks, s,
            ranks == 1 ? "s" : "", needed, where, bytes_text(available), bytes_text(most), parts, remedy);
}

std::string fits_with(const std::vector<std::string>& ways, const std::string& otherwise) {
  return ways.empty() ? otherwise : fmt::format("it fits with {}", fmt::join(ways, ", or with "));
}

}  // namespace trifold
