#include "checkpoint/first_step.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include "core/error.h"
#include "core/input_file.h"
#include "files/file.h"

namespace trifold {

namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "FIRST_STEP";
constexpr const char* kFinite = "finite";
constexpr const char* kNotFinite = "not finite";
constexpr size_t kMostText = 4000;

}  // namespace

FirstStep first_step_of(const fs::path& checkpoint) {
  std::string text;
  try {
    if (std::error_code missing; !fs::is_regular_file(checkpoint / kName, missing)) return {};
    text = read_input_file((checkpoint / kName).string(), 2 * static_cast<int64_t>(kMostText));
  } catch (const Error&) {
    return {};
  }
  const std::string first = text.substr(0, text.find('\n'));
  if (first == kFinite) return {FirstStep::Outcome::Finite, {}};
  if (first != kNotFinite) return {};
  std::string why = text.substr(std::min(text.size(), first.size() + 1));
  while (why.ends_with('\n')) why.pop_back();
  return {FirstStep::Outcome::NotFinite, std::move(why)};
}

// One short write; a kill in the middle leaves a file that counts as unknown. Does not wait until it is on
// the disk.
void note_first_step(const fs::path& checkpoint, const FirstStep& first) {
  std::error_code missing;
  if (first.outcome == FirstStep::Outcome::Unknown || !fs::is_directory(checkpoint, missing)) return;
  std::string text = first.outcome == FirstStep::Outcome::Finite ? kFinite : kNotFinite;
  text += "\n";
  if (!first.why.empty()) text += first.why.substr(0, kMostText) + "\n";
  fs::remove(checkpoint / kName, missing);  // never written through a link
  std::ofstream(checkpoint / kName, std::ios::trunc) << text << std::flush;
}

void FirstStepNotes::at(int64_t step, fs::path checkpoint) {
  step_ = step;
  checkpoint_ = std::move(checkpoint);
  if (finite_ > step_) finite(finite_);
}

void FirstStepNotes::finite(int64_t step) {
  finite_ = std::max(finite_, step);
  if (checkpoint_.empty() || finite_ <= step_) return;
  if (writes_) note_first_step(checkpoint_, {FirstStep::Outcome::Finite, {}});
  checkpoint_.clear();
}

bool FirstStepNotes::not_finite(int64_t step, const std::string& why, bool alone) {
  if (checkpoint_.empty() || finite_ > step_ || step <= step_) return false;
  if (writes_ || alone) note_first_step(checkpoint_, {FirstStep::Outcome::NotFinite, why});
  checkpoint_.clear();
  return true;
}

}  // namespace trifold
