#include "train/pretrain.h"

#include <filesystem>

#include "checkpoint/reader.h"
#include "config/json.h"
#include "config/validate.h"
#include "data/corpus.h"
#include "train/output_files.h"
#include "train/step_plan.h"
#include "zero/file_memory.h"

namespace trifold {

void resolve_vocabulary(ModelConfig& model, DataConfig& data) {
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(data);
  if (!tokenizer) {
    if (!model.vocab_size)
      bad_input(
          "--vocab-size is needed: a .bin/.idx data set does not say how many tokens its tokenizer has");
    return;
  }
  // A checkpoint remembers the model's file, and may be used from another folder.
  if (data.tokenizer_model) data.tokenizer_model = std::filesystem::absolute(*data.tokenizer_model).string();
  if (!data.tokenizer_type) data.tokenizer_type = "byte";  // the only one that needs no naming
  const int64_t needed = tokenizer->vocab_size();
  if (!model.vocab_size) model.vocab_size = needed;
  if (*model.vocab_size < needed)
    bad_input("--vocab-size {} is smaller than the tokenizer's {}; leave it out, or give at least {}",
              *model.vocab_size, needed, needed);
}

namespace {

// The place of the checkpoint that --load names. Where it cannot be read, check_checkpoint will say so.
RunPosition position_of(const CheckpointConfig& checkpoint) {
  if (!checkpoint.load) return {};
  try {
    const CheckpointReader reader(*checkpoint.load);
    return {reader.meta().step, reader.meta().consumed_samples};
  } catch (const Error&) {
    return {};
  }
}

// The order of the samples is another one in a run of whole passes. `name` is the checkpoint's.
void check_length(const PretrainConfig& config, const CheckpointMeta& meta, const std::string& name) {
  const bool passes = meta.config.contains("train_epochs") && !meta.config["train_epochs"].is_null();
  const BatchConfig& batch = config.batch;
  if (meta.step > 0 && passes != batch.train_epochs.has_value())
    bad_input(
        "{} was trained with --{}, which takes the samples in another order: resume with it, not with --{}",
        name, passes ? "train-epochs" : "train-iters", passes ? "train-iters" : "train-epochs");
  if (batch.train_epochs && !batch.train_samples) return;  // the data are at fault, which is told already
  if (meta.step < batch.train_iters) return;
  if (batch.train_epochs)
    bad_input("{} has done all of --train-epochs {} already; more would leave something to train", name,
              *batch.train_epochs);
  bad_input("{} has done {} steps already; --train-iters {} leaves nothing to train, more than {} would",
            name, meta.step, batch.train_iters, meta.step);
}

// What can be said about --load before any rank starts. Returns the steps it has done.
int64_t check_checkpoint(const PretrainConfig& config) {
  const CheckpointReader reader(*config.checkpoint.load);
  const CheckpointMeta& meta = reader.meta();
  const std::string name = reader.directory().string();
  compare_models(meta.model, to_json(config.model));
  const std::string dtype = meta.state.value("dtype", "");
  if (dtype != name_of(accumulate_type(compute_type(config.precision))))
    bad_input("{} holds {} numbers: {} --f64", name, dtype, config.precision.f64 ? "leave out" : "give");
  const int64_t batch =
      meta.step == 0 ? 0 : meta.config.value("global_batch_size", meta.consumed_samples / meta.step);
  if (meta.step > 0 && batch != *config.batch.global_batch_size)
    bad_input("{} was trained with global batches of {}: resume with --global-batch-size {}, not {}", name,
              batch, batch, *config.batch.global_batch_size);
  check_length(config, meta, name);
  return meta.step;
}

// A folder whose newest checkpoint is ahead of this run would go on showing that one to every reader.
void check_save(const PretrainConfig& config, int64_t first_step) {
  const std::string& save = *config.checkpoint.save;
  check_writable_folder("--save", save);
  int64_t newest = 0;
  try {
    newest = CheckpointReader(save).meta().step;
  } catch (const Error&) {
    return;  // no checkpoint there yet
  }
  if (newest > first_step)
    bad_input(
        "--save {} holds a checkpoint of step {} already, and this run starts after step {}: give --load {} "
        "to go "
        "on from it, or another --save",
        save, newest, first_step, save);
}

// Everything about a run that depends on files; mistakes are collected so that all are told at once.
class Preparation {
 public:
  template <class Part>
  void attempt(Part&& part) {
    try {
      part();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::BadInput) throw;
      problems_.emplace_back(error.what());
    }
  }
  void finish() const { throw_problems(problems_); }

 private:
  std::vector<std::string> problems_;
};

// Whole passes say how long the run is.
void open_passes(PretrainJob& job, const Corpus& corpus) {
  PretrainConfig& config = job.config;
  if (corpus.weighted())
    bad_input(
        "--train-epochs {}: a blend with weights draws shares of each path and has no single pass; give "
        "--train-iters, or leave out the weights",
        *config.batch.train_epochs);
  job.train = corpus.passes(Split::Train, config.model.seq_length, *config.batch.train_epochs, config.seed);
  config = resolve_length(std::move(config), job.train->samples(), position_of(config.checkpoint));
}

// Once through the validation part, so that no sample counts twice; a blend with weights has no such pass and
// gives the shares that --eval-iters asks for.
std::unique_ptr<DataSource> open_validation(const PretrainConfig& config, const Corpus& corpus) {
  if (!corpus.has(Split::Valid))
    bad_input(
        "--eval-interval {} needs validation data, but --split {} gives it none; 90,10 would, for example",
        *config.eval.eval_interval, config.data.split);
  if (!corpus.weighted()) return corpus.passes(Split::Valid, config.model.seq_length, 1, config.seed);
  const int64_t samples = config.eval.eval_iters * *config.batch.global_batch_size;
  return corpus.source(Split::Valid, config.model.seq_length, samples, config.seed);
}

void open_data(PretrainJob& job) {
  const Corpus corpus(job.config.data, *job.config.model.vocab_size);
  const PretrainConfig& config = job.config;
  if (config.batch.train_epochs) {
    open_passes(job, corpus);
  } else {
    const int64_t samples = config.batch.train_iters * *config.batch.global_batch_size;
    job.train = corpus.source(Split::Train, config.model.seq_length, samples, config.seed);
  }
  if (config.eval.eval_interval && config.eval.eval_iters > 0) job.valid = open_validation(config, corpus);
}

}  // namespace

PretrainJob prepare(PretrainConfig config) {
  PretrainJob job;
  job.config = std::move(config);
  const CheckpointConfig& checkpoint = job.config.checkpoint;
  Preparation files;
  int64_t first_step = 0;
  files.attempt([&] {
    resolve_vocabulary(job.config.model, job.config.data);
    open_data(job);
  });
  if (job.config.model.vocab_size) files.attempt([&] { check_schedule_file(job.config); });
  if (checkpoint.load && job.config.model.vocab_size)
    files.attempt([&] { first_step = check_checkpoint(job.config); });
  if (checkpoint.save) files.attempt([&] { check_save(job.config, first_step); });
  if (job.config.zero.offloads()) files.attempt([&] { check_offload_folder(job.config.zero.offload); });
  if (job.config.log.log_json)
    files.attempt([&] { check_writable_file("--log-json", *job.config.log.log_json); });
  files.finish();
  return job;
}

RunEnd pretrain(Communicator& world, const PretrainJob& job, RunObserver& observer,
                const std::atomic<int>& signal) {
  const PretrainConfig& config = job.config;
  const bool speaks = world.rank() == 0;
  Trainer trainer(world, config, *job.train, job.valid.get());
  std::vector<std::string> changes;
  if (config.checkpoint.load) changes = trainer.load(*config.checkpoint.load);
  trainer.measure_peak();
  RunReport report = trainer.report();
  report.changes = std::move(changes);
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
    for (const StepReport& step : trainer.advance(&signal))
      if (speaks) observer.on_step(step);
    if (job.valid && due(config.eval.eval_interval)) {
      const EvalReport eval = trainer.evaluate();
      if (speaks) observer.on_eval(eval);
    }
    if (due(config.checkpoint.save_interval)) save();
    if (trainer.stop_agreed() && trainer.steps_done() < config.batch.train_iters) {
      save();
      return RunEnd::Interrupted;
    }
    if (due(config.batch.exit_interval)) break;
  }
  save();
  return RunEnd::Done;
}

}  // namespace trifold
