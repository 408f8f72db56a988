#include <fmt/core.h>

#include <atomic>
#include <csignal>

#include "launch/commands.h"
#include "launch/crash_test.h"
#include "launch/progress.h"
#include "train/pretrain.h"
#include "train/ranks.h"

namespace trifold::launch {

namespace {

std::atomic<int> g_signal{0};  // a signal handler can reach nothing but a global

// The first signal asks for a stop after the step; the second one ends the process at once.
void on_signal(int number) {
  g_signal.store(number);
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
  std::signal(SIGUSR1, SIG_DFL);
}

}  // namespace

int run(const PretrainConfig& config) {
  PretrainJob job = prepare(config);
  if (job.is_finished) {
    fmt::print(stderr, "trifold: all {} steps are done already; nothing is left to train\n",
               job.config.batch.train_iters);
    return kDone;
  }
  job.at_save_phase = kill_at_save_phase();
  Progress progress(job.config.log, stderr);
  std::signal(SIGINT, on_signal);
  std::signal(SIGTERM, on_signal);
  std::signal(SIGUSR1, on_signal);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of the write, and told as one
  std::atomic<bool> interrupted{false};
  run_on_ranks(job.config.mesh, [&](Communicator& world) {
    if (pretrain(world, job, progress, g_signal) == RunEnd::Interrupted) interrupted = true;
  });
  progress.finish();
  if (!interrupted) return kDone;
  if (!job.config.checkpoint.save) {
    fmt::print(stderr, "trifold: stopped on a signal; nothing was saved because --save was not given\n");
    return kFailed;
  }
  fmt::print(stderr, "trifold: stopped on a signal with a checkpoint saved; go on with {}\n",
             config.checkpoint.auto_resume ? "the same line" : "--load " + *job.config.checkpoint.save);
  return kInterrupted;
}

}  // namespace trifold::launch
