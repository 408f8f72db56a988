// The loop of every training run, for any kind of model: it loads the job's checkpoint, trains step by step, evaluates
// and saves when due, and ends after the last step, at the limits of the job, or on a signal.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "core/clock.h"
#include "run/best_evaluation.h"
#include "run/health/loss_watch.h"
#include "run/job.h"
#include "run/metrics.h"
#include "run/savable.h"

namespace trifold {

// The outcome of an evaluation.
struct Evaluation {
  std::optional<double> value;  // decides about the best evaluation; absent if the data do not define it
  bool at_target = false;       // the run has reached its target and ends
};

// One rank's part of a training run. All calls are collective unless they say otherwise. Implementations send
// further reports to their own observer.
class TrainingRun {
 public:
  virtual ~TrainingRun() = default;
  // The state that checkpoints hold. Not collective.
  virtual Savable& state() = 0;
  // Continues from the checkpoint at, or the newest one under, `path`, with the part of it that `start` names. Returns
  // the differences from the run that wrote it, one line each. Throws on all ranks or on none; after an Error another
  // checkpoint may be loaded. May be called again between steps.
  virtual std::vector<std::string> load(const std::string& path, const RunStart& start) = 0;
  // Called when the state is complete, before the first step: reports the run's description.
  virtual void begin(std::vector<std::string> changes, std::vector<std::string> processes) = 0;
  // Waits until samples can be read; returns false on all ranks if one of them sees its signal first.
  virtual bool wait_for_data(const std::atomic<int>& /*signal*/) { return true; }

  // Trains the next step, or several that belong together, and reports them. Returns whether one of them changed the
  // weights. If `signal` is not zero on some rank at the end, stop_agreed() becomes true on all ranks.
  virtual bool advance(const std::atomic<int>& signal) = 0;
  // The number of steps that the next advance() trains. Not collective.
  virtual int64_t steps_at_once() const { return 1; }
  // The two readings of the clock whose difference the last advance() reported as the time of its step, or of its steps
  // together; after skip(), one reading twice. Not collective.
  virtual ClockSpan step_time() const = 0;
  // Passes over the next step: consumes its samples, leaves the state as it is otherwise, and reports that.
  virtual void skip() = 0;
  // The losses so far, which are part of the state; advance() adds to them. Not collective.
  virtual LossWatch& losses() = 0;
  // Samples that the first `steps` steps consume. Not collective.
  virtual int64_t samples_of(int64_t steps) const = 0;
  // A number for each rank of the world, the same for ranks that do equal work; empty: all do. Not collective.
  virtual std::vector<int> work_groups() { return {}; }
  // After advance() threw because a loss or gradients were not finite: the step, counted from 1. Not collective.
  virtual std::optional<int64_t> failed_step() const = 0;
  // Whether to evaluate after the steps so far. The same on all ranks; not collective.
  virtual bool evaluation_due() const = 0;
  // Evaluates and reports. Stops early if a rank sees its signal; stop_agreed() is then true.
  virtual Evaluation evaluate(const std::atomic<int>& signal) = 0;
  // The evaluations so far, which are part of the state; the loop adds to them. Not collective.
  virtual BestEvaluation& best() = 0;
  // True on all ranks once one of them has seen its signal. Not collective.
  virtual bool stop_agreed() const = 0;
  // Checks the signal again, for example after a save.
  virtual void poll_stop(const std::atomic<int>& signal) = 0;
  // Shows the actions and tensors of every step to `watch`, which must outlive the run. Not collective.
  virtual void watch(StepWatch& watch) = 0;

 protected:
  TrainingRun() = default;
  TrainingRun(const TrainingRun&) = default;
  TrainingRun& operator=(const TrainingRun&) = default;
};

// Collective over `world`. `observer` is null on all ranks but 0. All references must stay valid during the call.
RunEnd run_loop(Communicator& world, TrainingRun& run, const RunJob& job, const WatchConfig& watch,
                const CheckpointConfig& checkpoint, SaveObserver* observer, const std::atomic<int>& signal);

}  // namespace trifold
