// The outcome of the first step after a checkpoint: whether it was finite, if that is known. A checkpoint
// that was trained on is known to be good; one whose first step was not finite may hold a state that is
// already broken, or precede samples that break it.
//
// It is written into the checkpoint's folder as a file of its own (FIRST_STEP), so that it is removed with
// the checkpoint, also when another one of the same step replaces it, and survives however the run ends. A
// checkpoint without the file, such as an older one, counts as unknown.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace trifold {

struct FirstStep {
  enum class Outcome { Unknown, Finite, NotFinite };

  Outcome outcome = Outcome::Unknown;
  std::string why;  // if not finite: the reason that the run reported
};

FirstStep first_step_of(const std::filesystem::path& checkpoint);
// Records the outcome. If the file cannot be written, the outcome stays as it is.
void note_first_step(const std::filesystem::path& checkpoint, const FirstStep& first);

// Follows a run from checkpoint to checkpoint and records the outcomes of their first steps. Every rank has
// one; only the rank whose `writes` is true touches files.
class FirstStepNotes {
 public:
  explicit FirstStepNotes(bool writes) : writes_(writes) {}

  // The state after step `step` is now in `checkpoint`: it was saved there, or loaded from there. An empty
  // path stands for a checkpoint of another run, whose folder must not be touched. Later steps may have been
  // reported already.
  void at(int64_t step, std::filesystem::path checkpoint);
  // Loss and gradients of step `step` were finite, and the weights updated.
  void finite(int64_t step);
  // Loss or gradients of step `step` were not finite. Returns true if it was the first step after the
  // checkpoint noted last. If not all ranks know of it, those that do (`alone`) write.
  bool not_finite(int64_t step, const std::string& why, bool alone = false);

 private:
  bool writes_;
  int64_t step_ = -1;                 // of the latest checkpoint
  std::filesystem::path checkpoint_;  // empty if its outcome was recorded, or must not be
  int64_t finite_ = -1;               // the last step that was finite
};

}  // namespace trifold
