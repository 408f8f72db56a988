#include "train/finetune.h"

#include <fmt/core.h>

#include <atomic>

#include "launch/commands.h"
#include "launch/crash_test.h"
#include "launch/progress.h"
#include "launch/say.h"
#include "launch/signals.h"
#include "train/ranks.h"
#include "train/run_saver.h"

namespace trifold::launch {

int run(const FinetuneConfig& config, Ranks& ranks) {
  FinetuneJob job;
  ranks.agree([&] { job = prepare(config); });
  ranks.compare(job.terms);
  if (job.run) ranks.compare(job.run->terms);
  if (job.run && job.run->is_finished) {
    tidy_save_folder(job.run->config.checkpoint);
    say(stderr, fmt::format("trifold: all {} steps are done already; nothing is left to train\n",
                            job.run->config.batch.train_iters));
    return kDone;
  }
  if (job.run) job.run->at_save_phase = kill_at_save_phase();
  Progress progress(config.run.log, stderr);
  const std::atomic<int>& signal = catch_signals();
  std::atomic<RunEnd> end{RunEnd::Done};
  ranks.run(job.run ? job.run->config.mesh : job.config.run.mesh, [&](Communicator& world) {
    end = finetune(world, job, progress, signal);  // the same on every rank
  });
  progress.finish();
  if (end == RunEnd::Done) return kDone;
  return told_of_interruption(end, job.run ? job.run->config.checkpoint : CheckpointConfig{});
}

}  // namespace trifold::launch
