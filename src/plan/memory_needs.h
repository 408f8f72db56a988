// The memory needed by ranks that share a host or a device, and the message for a run that does not fit: common to
// language models (plan/memory_fit.h) and recommenders (recommend/planning/host_fit.h).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace trifold {

class MemoryNeeds {
 public:
  // `bytes` has one entry for each distinct rank; each entry stands for `alike` ranks of the run that need as much.
  explicit MemoryNeeds(std::vector<size_t> bytes, size_t alike = 1);

  // The sum over the `count` ranks that need most, or least; over all ranks if there are fewer.
  size_t sum_of_most(size_t count) const;
  size_t sum_of_least(size_t count) const;

 private:
  std::vector<size_t> ascending_;
  size_t alike_;
};

// Throws BadInput: "2 ranks of this run need 12 GiB of memory on this host, which has 8 GiB: up to 6 GiB a rank
// (weights ...); it fits with ...". `where` is "on this host", `parts` lists the needs of the rank that needs most,
// `remedy` says what would fit.
[[noreturn]] void refuse_for_memory(size_t ranks, const std::string& needed, std::string_view where,
                                    size_t available, size_t most, const std::string& parts,
                                    const std::string& remedy);
// "it fits with A, or with B", or `otherwise` if there is no way.
std::string fits_with(const std::vector<std::string>& ways, const std::string& otherwise);

}  // namespace trifold
