// The outcome of the first step after a checkpoint: whether it was finite, if that is known. A checkpoint from which
// training continued is known to be good; one whose first step was not finite may hold a broken state, or precede
// samples that break it.
//
// The outcome is a file of its own (FIRST_STEP) in the checkpoint's folder. It is therefore removed with the
// checkpoint, also when another checkpoint of the same step replaces it, and survives any end of the run. Without the
// file, as in older checkpoints, the outcome is unknown.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace trifold {

struct FirstStep {
  enum class Outcome { Unknown, Finite, NotFinite };

  Outcome outcome = Outcome::Unknown;
  std::string why;  // for NotFinite: the reason that the run reported
};

FirstStep first_step_of(const std::filesystem::path& checkpoint);
// Records the outcome; if the file cannot be written, the outcome is unchanged.
void note_first_step(const std::filesystem::path& checkpoint, const FirstStep& first);

// FirstStepNotes follows a run from checkpoint to checkpoint and records the outcomes of their first steps. Every rank
// has one; only the rank with `writes` touches files.
class FirstStepNotes {
 public:
  explicit FirstStepNotes(bool writes) : writes_(writes) {}

  // Call when the state after step `step` was saved to, or loaded from, `checkpoint`. An empty path stands for a
  // checkpoint of another run, whose folder must not be touched. Later steps may have been reported already.
  void at(int64_t step, std::filesystem::path checkpoint);
  // Call when loss and gradients of step `step` were finite and the weights were updated.
  void finite(int64_t step);
  // Call when loss or gradients of step `step` were not finite. Returns true if it was the first step after the latest
  // checkpoint. `alone`: not all ranks know of it, so every rank that does writes.
  bool not_finite(int64_t step, const std::string& why, bool alone = false);

 private:
  bool writes_;
  int64_t step_ = -1;                 // step of the latest checkpoint
  std::filesystem::path checkpoint_;  // empty if its outcome was recorded, or must not be
  int64_t finite_ = -1;               // the last finite step
};

}  // namespace trifold
