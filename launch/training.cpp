#include "launch/training.h"

#include <fmt/core.h>

#include <atomic>

#include "launch/commands.h"
#include "launch/faults/crash_test.h"
#include "launch/process/signals.h"
#include "launch/say.h"
#include "monitor/perfetto_trace.h"
#include "run/saver.h"

namespace trifold::launch {

namespace {

// Reports what an interrupted run leaves behind; returns its exit status.
int report_interruption(RunEnd end, const CheckpointConfig& checkpoint) {
  if (end == RunEnd::NotBegun) {
    say(stderr, "trifold: stopped on a signal before the first step; run the same command to begin again\n");
    return kInterrupted;
  }
  if (!checkpoint.save) {
    say(stderr, "trifold: stopped on a signal; nothing was saved because --save was not given\n");
    return kFailed;
  }
  say(stderr,
      fmt::format(
          "trifold: stopped on a signal with a checkpoint saved; to continue, run the same command{}\n",
          checkpoint.auto_resume ? "" : " with --load " + *checkpoint.save));
  return kInterrupted;
}

// BadInput if the steps of --trace will not be made, or their trace cannot be encoded.
void check_trace(const WatchConfig& watch, const RunLimits& limits) {
  if (!watch.trace) return;
  perfetto_trace({});
  if (watch.trace_from && *watch.trace_from > limits.last_step)
    bad_input("--trace-from {} lies after the last step: give at most {}", *watch.trace_from,
              limits.last_step);
}

}  // namespace

Monitor open_monitor(Ranks& ranks, const LogConfig& log, const RunJob& job) {
  Monitor monitor;
  ranks.agree([&] {
    if (!ranks.has_first() || !job.finished.empty()) return;
    check_trace(log.watch, job.limits);
    monitor = Monitor(log);
  });
  return monitor;
}

int train_on_ranks(Ranks& ranks, RunJob& job, const MeshConfig& mesh, const CheckpointConfig& checkpoint,
                   ProgressLines& progress,
                   FunctionRef<RunEnd(Communicator& world, const std::atomic<int>& signal)> train) {
  if (!job.finished.empty()) {
    tidy_save_folder(checkpoint);
    say(stderr, fmt::format("trifold: {}; nothing is left to train\n", job.finished));
    return kDone;
  }
  job.at_save_phase = kill_at_save_phase();
  const std::atomic<int>& signal = catch_signals();
  std::atomic<RunEnd> end{RunEnd::Done};
  ranks.run(mesh, [&](Communicator& world) { end = train(world, signal); });
  progress.finish();
  return end == RunEnd::Done ? kDone : report_interruption(end, checkpoint);
}

}  // namespace trifold::launch
