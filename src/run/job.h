// What runs of all kinds (`pretrain`, `finetune`, `recommend`) have in common before and after their steps:
// a job, which is made once a process and finds what is wrong with the user's files, and how a run ends.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/new_checkpoint.h"
#include "config/rules/validate.h"
#include "core/clock.h"
#include "run/probe.h"
#include "run/start.h"
#include "run/terms.h"
#include "text/data_fingerprint.h"

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
  // Or as many evaluations in a row that were no better than the best before them.
  std::optional<int64_t> early_stop_patience;
};

struct RunJob {
  DataFingerprint fingerprint;  // of the training data
  RunStart start;
  RunLimits limits;
  RunTerms terms;                          // what it must have in common with the jobs of other ranks
  Clock::time_point began = Clock::now();  // what exit_duration_in_mins counts from
  std::string finished;  // --auto-resume found that nothing is left to train: why; else empty
  std::function<void(SavePhase)> at_save_phase;  // called at every phase of every save; for tests
  RunProbe* probe = nullptr;                     // for tests

  // Adds to the terms the options, and the checkpoint that the run goes on from.
  void add_terms(const OptionTable& options);
};

// What `finished` says of a run that has done all its steps.
std::string all_steps_done(int64_t steps);
// The same of one that `limits` ended early, as the checkpoint at `start` says; empty: they did not. BadInput
// where the user asked to go on from that checkpoint.
std::string ended_early(const RunStart& start, const RunLimits& limits);

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
