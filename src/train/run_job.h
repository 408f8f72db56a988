// What runs of all kinds (`pretrain`, `finetune`, `recommend`) have in common before and after their steps:
// a job, which is made once a process and finds what is wrong with the user's files, and how a run ends.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/new_checkpoint.h"
#include "config/validate.h"
#include "core/clock.h"
#include "text/data_fingerprint.h"
#include "train/run_probe.h"
#include "train/run_start.h"
#include "train/run_terms.h"

namespace trifold {

enum class RunEnd {
  Done,         // all steps, the target, --exit-interval or --exit-duration-in-mins
  Interrupted,  // a signal: the checkpoint is saved, where --save says so
  NotBegun,     // a signal before the first step: there is nothing to save
};

// After which step a run ends.
struct RunLimits {
  int64_t last_step = 0;
  std::optional<int64_t> exit_interval;         // or the first step that it divides
  std::optional<double> exit_duration_in_mins;  // or the first that ends later than this after the start
};

struct RunJob {
  DataFingerprint fingerprint;  // of the training data
  RunStart start;
  RunLimits limits;
  RunTerms terms;                                // what it must have in common with the jobs of other ranks
  Clock::time_point began = Clock::now();        // what exit_duration_in_mins counts from
  bool is_finished = false;                      // --auto-resume found that nothing is left to train
  std::function<void(SavePhase)> at_save_phase;  // called at every phase of every save; for tests
  RunProbe* probe = nullptr;                     // for tests

  // Adds to the terms the options, and the checkpoint that the run goes on from.
  void add_terms(const OptionTable& options);
};

// Collects what is wrong with the files of a run, so that the user sees all mistakes at once.
class Preparation {
 public:
  // Runs `part`, and keeps the text of a BadInput that it throws.
  template <class Part>
  void attempt(Part&& part) {
    try {
      part();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::BadInput) throw;
      problems_.emplace_back(error.what());
    }
  }
  // That checkpoints and the log can be written. `first_step` as in check_save.
  void check_outputs(const RunStart& start, const CheckpointConfig& checkpoint, const LogConfig& log,
                     std::optional<int64_t> first_step);
  // BadInput where something was wrong.
  void finish() const { throw_problems(problems_); }

 private:
  std::vector<std::string> problems_;
};

}  // namespace trifold
