// The parts that all kinds of runs (`pretrain`, `finetune`, `recommend`) have in common before and after their steps:
// the job, which is made once per process and finds mistakes in the user's files, and the end of a run.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/new_checkpoint.h"
#include "config/commands/validate.h"
#include "core/clock.h"
#include "run/model_folders.h"
#include "run/probe.h"
#include "run/start.h"
#include "run/terms.h"
#include "text/data_fingerprint.h"

namespace trifold {

enum class RunEnd {
  Done,  // all steps, the target, --exit-interval or --exit-duration-in-mins
  Interrupted,  // a signal before the last step, or before the last evaluation if --save-best needs it; a checkpoint is
                // saved if --save is given
  NotBegun,  // a signal before the first step; there is nothing to save
};

// The ranks of a mesh that this host runs.
enum class RanksHere {
  All,       // the ranks that the launcher started, or all as threads
  OneAlone,  // one at a time, without its peers (src/rehearse): the memory of the others is not checked
};

// The conditions that end a run.
struct RunLimits {
  int64_t last_step = 0;
  std::optional<int64_t> exit_interval;         // end at the first step divisible by it
  std::optional<double> exit_duration_in_mins;  // end at the first step that finishes later than this
  std::optional<int64_t> early_stop_patience;   // end after this many evaluations in a row without a new best
};

struct RunJob {
  DataFingerprint fingerprint;  // fingerprint of the training data
  RunStart start;
  RunLimits limits;
  RunTerms terms;                          // must be equal in the jobs of all ranks
  Clock::time_point began = Clock::now();  // start of exit_duration_in_mins
  std::string finished;  // why --auto-resume found nothing left to train; empty: something is left
  std::function<void(SavePhase)> at_save_phase;  // called at every phase of every save; for tests
  RunProbe* probe = nullptr;                     // for tests
  WriteModel write_model;                        // writes the folders of --save-hf; empty: cannot

  // Adds the options, and the checkpoint from which the run continues, to the terms.
  void add_terms(const OptionTable& options);
};

// RunJob::finished for a run that has done all its steps.
std::string all_steps_done(int64_t steps);
// Whether the checkpoint at `start` was saved by an interrupted run that left out the evaluation of the checkpoint's
// step, which --save-best of `config` needs. The run then evaluates even if no step is left.
bool lacks_evaluation(const RunStart& start, const CheckpointConfig& config);
// RunJob::finished for a run that `limits` ended early, according to the checkpoint at `start`; empty if they did not.
// BadInput if the user explicitly asked to continue from that checkpoint.
std::string ended_early(const RunStart& start, const RunLimits& limits);

// Collects the mistakes in the files of a run, so that the user sees all at once.
class Preparation {
 public:
  // Runs `part` and collects the text of a BadInput that it throws.
  template <class Part>
  void attempt(Part&& part) {
    try {
      part();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::BadInput) throw;
      problems_.emplace_back(error.what());
    }
  }
  // Checks that checkpoints and logs can be written. `first_step` as in check_save.
  void check_outputs(const RunStart& start, const CheckpointConfig& checkpoint, const LogConfig& log,
                     std::optional<int64_t> first_step);
  // BadInput if there were mistakes.
  void finish() const { throw_problems(problems_); }

 private:
  std::vector<std::string> problems_;
};

}  // namespace trifold
