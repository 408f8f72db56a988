#include "train/pretrain.h"

#include "checkpoint/reader.h"
#include "config/json.h"
#include "data/corpus.h"

namespace trifold {

void resolve_vocabulary(ModelConfig& model, DataConfig& data) {
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(data);
  if (!tokenizer) {
    if (!model.vocab_size)
      bad_input(
          "--vocab-size is needed: a .bin/.idx data set does not say how many tokens its tokenizer has");
    return;
  }
  if (!data.tokenizer_type) data.tokenizer_type = "byte";  // the only one that needs no naming
  const int64_t needed = tokenizer->vocab_size();
  if (!model.vocab_size) model.vocab_size = needed;
  if (*model.vocab_size < needed)
    bad_input("--vocab-size {} is smaller than the tokenizer's {}; leave it out, or give at least {}",
              *model.vocab_size, needed, needed);
}

namespace {

// What can be said about --load before any rank starts.
void check_checkpoint(const PretrainConfig& config) {
  if (!config.checkpoint.load) return;
  const CheckpointReader reader(*config.checkpoint.load);
  compare_models(reader.meta().model, to_json(config.model));
  const int64_t steps = reader.meta().consumed_samples / *config.batch.global_batch_size;
  if (steps >= config.batch.train_iters)
    bad_input("{} has done {} steps already; --train-iters {} leaves nothing to train, more than {} would",
              reader.directory().string(), steps, config.batch.train_iters, steps);
}

}  // namespace

PretrainJob prepare(PretrainConfig config) {
  resolve_vocabulary(config.model, config.data);
  check_checkpoint(config);
  const Corpus corpus(config.data, *config.model.vocab_size);
  const int64_t interval = config.eval.eval_interval.value_or(0);
  const auto source = [&](Split split) {
    const int64_t samples = samples_needed(split, config.batch.train_iters, interval, config.eval.eval_iters,
                                           *config.batch.global_batch_size);
    return corpus.source(split, config.model.seq_length, samples, config.seed);
  };
  PretrainJob job;
  job.train = source(Split::Train);
  if (interval > 0) {
    if (!corpus.has(Split::Valid))
      bad_input(
          "--eval-interval {} needs validation data, but --split {} gives it none; 90,10 would, for example",
          interval, config.data.split);
    job.valid = source(Split::Valid);
  }
  job.config = std::move(config);
  return job;
}

RunEnd pretrain(Communicator& world, const PretrainJob& job, RunObserver& observer,
                const std::atomic<int>& signal) {
  const PretrainConfig& config = job.config;
  const bool speaks = world.rank() == 0;
  Trainer trainer(world, config, *job.train, job.valid.get());
  if (config.checkpoint.load) trainer.load(*config.checkpoint.load);
  trainer.measure_peak();
  const RunReport report = trainer.report();
  if (speaks) observer.on_start(report);

  int64_t saved_step = -1;
  const auto save = [&] {
    if (!config.checkpoint.save || saved_step == trainer.steps_done()) return;
    const std::string directory = trainer.save(*config.checkpoint.save);
    saved_step = trainer.steps_done();
    if (speaks) observer.on_saved(saved_step, directory);
  };
  const auto due = [&](const std::optional<int64_t>& interval) {
    return interval && trainer.steps_done() % *interval == 0;
  };
  while (trainer.steps_done() < config.batch.train_iters) {
    const StepReport step = trainer.step(signal.load() != 0);
    if (speaks) observer.on_step(step);
    if (due(config.eval.eval_interval)) {
      const EvalReport eval = trainer.evaluate();
      if (speaks) observer.on_eval(eval);
    }
    if (due(config.checkpoint.save_interval)) save();
    if (trainer.stop_agreed()) {
      save();
      return RunEnd::Interrupted;
    }
    if (due(config.batch.exit_interval)) break;
  }
  save();
  return RunEnd::Done;
}

}  // namespace trifold
