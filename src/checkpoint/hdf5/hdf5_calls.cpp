#include "checkpoint/hdf5/hdf5_calls.h"

#include <fmt/ranges.h>

#include <mutex>
#include <vector>

namespace trifold::hdf5 {

namespace {

std::mutex& process_mutex() {
  static std::mutex mutex;
  return mutex;
}

}  // namespace

Lock::Lock() {
  process_mutex().lock();
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Lock::~Lock() { process_mutex().unlock(); }

std::string reason() {
  std::vector<std::string> lines;
  const auto collect = [](unsigned, const H5E_error2_t* entry, void* to) -> herr_t {
    auto& out = *static_cast<std::vector<std::string>*>(to);
    if (out.size() < 2 && entry->desc != nullptr) out.emplace_back(entry->desc);
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, collect, &lines);
  H5Eclear2(H5E_DEFAULT);
  return lines.empty() ? "no reason given" : fmt::format("{}", fmt::join(lines, "; "));
}

}  // namespace trifold::hdf5
