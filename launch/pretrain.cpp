#include <fmt/core.h>

#include <atomic>
#include <memory>

#include "launch/commands.h"
#include "launch/crash_test.h"
#include "launch/fault_test.h"
#include "launch/progress.h"
#include "launch/say.h"
#include "launch/signals.h"
#include "train/pretrain.h"
#include "train/ranks.h"
#include "train/run_saver.h"

namespace trifold::launch {

int told_of_interruption(RunEnd end, const CheckpointConfig& checkpoint) {
  if (end == RunEnd::NotBegun) {
    say(stderr, "trifold: stopped on a signal before the first step; begin again with the same line\n");
    return kInterrupted;
  }
  if (!checkpoint.save) {
    say(stderr, "trifold: stopped on a signal; nothing was saved because --save was not given\n");
    return kFailed;
  }
  say(stderr, fmt::format("trifold: stopped on a signal with a checkpoint saved; go on with {}\n",
                          checkpoint.auto_resume ? "the same line" : "--load " + *checkpoint.save));
  return kInterrupted;
}

int run(const PretrainConfig& config, Ranks& ranks) {
  const std::unique_ptr<Fault> fault = Fault::from_environment();
  PretrainJob job;
  ranks.agree([&] {
    if (fault) fault->at_start(mpi_launch_rank());
    job = prepare(config);
  });
  ranks.compare(job.terms);
  if (job.is_finished) {
    tidy_save_folder(job.config.checkpoint);
    say(stderr, fmt::format("trifold: all {} steps are done already; nothing is left to train\n",
                            job.config.batch.train_iters));
    return kDone;
  }
  job.at_save_phase = kill_at_save_phase();
  if (fault) fault->attach(job);
  Progress progress(job.config.log, stderr);
  const std::atomic<int>& signal = catch_signals();
  std::atomic<RunEnd> end{RunEnd::Done};
  ranks.run(job.config.mesh, [&](Communicator& world) {
    if (fault) fault->at_start(world.rank());
    end = pretrain(world, job, progress, signal);  // the same on every rank
  });
  progress.finish();
  return end == RunEnd::Done ? kDone : told_of_interruption(end, job.config.checkpoint);
}

}  // namespace trifold::launch
