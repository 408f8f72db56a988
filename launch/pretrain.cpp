#include "train/pretrain.h"

#include <memory>

#include "config/commands/json.h"
#include "convert/convert.h"
#include "launch/commands.h"
#include "launch/faults/fault_test.h"
#include "launch/plan_search.h"
#include "launch/say.h"
#include "launch/training.h"
#include "plan/layout_search.h"

namespace trifold::launch {

namespace {

// The configuration with the layout that --auto-layout chooses. Every process finds the same layout; the first prints
// it.
PretrainConfig laid_out(const PretrainConfig& config) {
  if (!config.auto_layout) return config;
  PretrainConfig open = config;
  if (!open.model.vocab_size || open.model.model) resolve_vocabulary(open.model, open.data);
  ChosenLayout choice = choose_layout(open);
  if (mpi_launch_rank().value_or(0) == 0) say(stderr, chosen_layout_text(config, choice.found));
  choice.run.model.vocab_size = config.model.vocab_size;
  choice.run.data = config.data;  // the run resolves its tokenizer again
  return std::move(choice.run);
}

}  // namespace

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
