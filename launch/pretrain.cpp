#include "train/pretrain.h"

#include <memory>

#include "config/commands/json.h"
#include "convert/convert.h"
#include "launch/commands.h"
#include "launch/faults/fault_test.h"
#include "launch/planning/plan_search.h"
#include "launch/training.h"

namespace trifold::launch {

int run(const PretrainConfig& config, Ranks& ranks) {
  const std::unique_ptr<Fault> fault = Fault::from_environment();
  PretrainJob job;
  ranks.agree([&] {
    if (fault) fault->at_start(mpi_launch_rank());
    job = prepare(laid_out(config));
    job.write_model = model_writer(job.config.checkpoint);
  });
  ranks.compare(job.terms);
  if (fault) fault->attach(job);
  Monitor monitor = open_monitor(ranks, job.config.log, job);
  Progress progress(job.config.log, stderr, monitor, {"pretrain", to_json(job.config)});
  const auto train = [&](Communicator& world, const std::atomic<int>& signal) {
    if (fault) fault->at_start(world.rank());
    return pretrain(world, job, progress, signal);
  };
  return train_on_ranks(ranks, job, job.config.mesh, job.config.checkpoint, progress, train);
}

}  // namespace trifold::launch
