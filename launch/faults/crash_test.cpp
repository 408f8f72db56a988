#include "launch/faults/crash_test.h"

#include <atomic>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>

#include "core/error.h"

namespace trifold::launch {

namespace {

SavePhase phase_named(std::string_view name) {
  std::string known;
  for (const SavePhase phase : save_phases()) {
    if (name_of(phase) == name) return phase;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", name_of(phase));
  }
  bad_input("TRIFOLD_TEST_KILL_AT={}: the phases of a save are {}", name, known);
}

}  // namespace

std::function<void(SavePhase)> kill_at_save_phase() {
  const char* text = std::getenv("TRIFOLD_TEST_KILL_AT");
  if (text == nullptr) return {};
  const std::string_view all(text);
  const size_t colon = all.find(':');
  const SavePhase where = phase_named(all.substr(0, colon));
  int times = 1;
  if (colon != std::string_view::npos) std::from_chars(text + colon + 1, text + all.size(), times);
  // Shared by the ranks of this process.
  return [where, left = std::make_shared<std::atomic<int>>(times)](SavePhase phase) {
    if (phase == where && --*left == 0) std::raise(SIGKILL);
  };
}

}  // namespace trifold::launch
