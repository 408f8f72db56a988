#include "train/finetune.h"

#include "config/commands/json.h"
#include "convert/convert.h"
#include "launch/commands.h"
#include "launch/training.h"

namespace trifold::launch {

int run(const FinetuneConfig& config, Ranks& ranks) {
  FinetuneJob job;
  ranks.agree([&] {
    job = prepare(config);
    if (job.run) job.run->write_model = model_writer(job.run->config.checkpoint);
  });
  ranks.compare(job.terms);
  if (job.run) ranks.compare(job.run->terms);
  RunJob evaluation;  // if nothing is trained
  RunJob& run = job.run ? *job.run : evaluation;
  const PretrainConfig& trained = job.run ? job.run->config : job.config.run;
  Monitor monitor = open_monitor(ranks, config.run.log, run);
  Progress progress(config.run.log, stderr, monitor, {"finetune", to_json(trained)});
  const auto train = [&](Communicator& world, const std::atomic<int>& signal) {
    return finetune(world, job, progress, signal);
  };
  return train_on_ranks(ranks, run, trained.mesh, job.run ? trained.checkpoint : CheckpointConfig{}, progress,
                        train);
}

}  // namespace trifold::launch
