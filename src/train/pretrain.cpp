#include "train/pretrain.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "config/option_tables.h"
#include "config/validate.h"
#include "data/bert_samples.h"
#include "data/corpus.h"
#include "train/checkpoint_model.h"
#include "train/device.h"
#include "train/memory_fit.h"
#include "train/nodes.h"
#include "train/output_files.h"
#include "train/run_saver.h"
#include "train/step_plan.h"
#include "train/training_text.h"
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
  const int64_t needed = is_bert(model) ? bert_vocabulary(*tokenizer) : tokenizer->vocab_size();
  if (!model.vocab_size) model.vocab_size = needed;
  if (*model.vocab_size < needed)
    bad_input("--vocab-size {} is smaller than the tokenizer's {}{}; leave it out, or give at least {}",
              *model.vocab_size, needed, is_bert(model) ? " (with BERT's own tokens)" : "", needed);
}

namespace {

// Text becomes bytes where no tokenizer is named. That is not what a model that is trained further knows,
// unless its own tokens were bytes.
void expect_named_tokenizer(const RunStart& start, const DataConfig& data) {
  if (!start.from || data.tokenizer_type || open_tokenizer(data) == nullptr) return;
  std::optional<CheckpointModel> from;
  try {
    from = describe_checkpoint(*start.from);
  } catch (const Error&) {
    return;  // check_start says what is wrong, or falls back
  }
  const std::optional<std::string>& type = from->data.tokenizer_type;
  if (type == "byte") return;
  const std::string named = !type ? "on token files"
                            : from->data.tokenizer_model
                                ? fmt::format("with the tokenizer {}", *from->data.tokenizer_model)
                                : "with the tokenizer " + *type;
  bad_input(
      "{} was trained {}, and text would become bytes here: give --tokenizer-type and --tokenizer-model, or "
      "--tokenizer-type byte if bytes are meant",
      from->directory, named);
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
void open_passes(PretrainJob& job, const TrainingText& corpus) {
  PretrainConfig& config = job.config;
  if (corpus.weighted())
    bad_input(
        "--train-epochs {}: a blend with weights draws shares of each path and has no single pass; give "
        "--train-iters, or leave out the weights",
        *config.batch.train_epochs);
  if (corpus.streams())
    bad_input(
        "--train-epochs {}: text that is streamed (folders, JSON lines, packed files, and plain text larger "
        "than 64 MiB) has no known number of samples; give --train-iters, or write .bin/.idx files first "
        "with 'trifold tokenize'",
        *config.batch.train_epochs);
  job.train = corpus.passes(Split::Train, config.model.seq_length, *config.batch.train_epochs, config.seed);
  config = resolve_length(std::move(config), job.train->samples(), position_of(job.start));
}

// Once through the validation part, so that no sample counts twice; a blend with weights has no such pass and
// gives the shares that --eval-iters asks for.
std::unique_ptr<DataSource> open_validation(const PretrainConfig& config, const TrainingText& corpus) {
  if (!corpus.has(Split::Valid))
    bad_input(
        "--eval-interval {} needs validation data, but --split {} gives it none; 90,10 would, for example",
        *config.eval.eval_interval, config.data.split);
  const int64_t samples = config.eval.eval_iters * *config.batch.global_batch_size;
  if (!corpus.weighted())
    return corpus.passes(Split::Valid, config.model.seq_length, 1, config.seed, samples);
  return corpus.source(Split::Valid, config.model.seq_length, samples, config.seed);
}

void open_data(PretrainJob& job) {
  const TrainingText corpus(job.config.model, job.config.data);
  const PretrainConfig& config = job.config;
  job.bad_records = corpus.bad_records();
  if (config.batch.train_epochs) {
    open_passes(job, corpus);
  } else {
    const int64_t samples = config.batch.train_iters * *config.batch.global_batch_size;
    job.train = corpus.source(Split::Train, config.model.seq_length, samples, config.seed);
  }
  if (config.eval.eval_interval && config.eval.eval_iters > 0) job.valid = open_validation(config, corpus);
}

}  // namespace

PretrainJob prepare(PretrainConfig config, const std::function<void(PretrainJob&)>& open_data) {
  PretrainJob job;
  job.config = std::move(config);
  const CheckpointConfig& checkpoint = job.config.checkpoint;
  Preparation files;
  std::optional<int64_t> first_step;  // unknown while something is wrong with the start
  files.attempt([&] { check_device(job.config.mesh); });
  files.attempt([&] { job.start = choose_start(checkpoint, job.config.model); });
  if (!job.start.from) first_step = 0;
  files.attempt([&] {
    open_data(job);
    job.fingerprint = fingerprint_of(job.config.data);
  });
  if (job.config.model.vocab_size) files.attempt([&] { check_schedule_file(job.config); });
  if (job.start.from && job.config.model.vocab_size)
    files.attempt([&] { first_step = check_start(job.start, job.config, job.train.get(), job.fingerprint); });
  if (checkpoint.save) files.attempt([&] { check_save(checkpoint, job.start, first_step); });
  if (job.config.zero.offloads() && !job.config.zero.offloads_to_host())
    files.attempt([&] { check_offload_folder(job.config.zero.offload); });
  if (job.config.log.log_json)
    files.attempt([&] { check_writable_file("--log-json", *job.config.log.log_json); });
  files.finish();
  job.terms.add(options_of(job.config));
  job.terms.add(job.config.data, job.fingerprint);
  if (job.start.from && !job.start.may_fall_back) job.terms.add_checkpoint(*job.start.from);
  job.is_finished = is_finished(job.start, job.config);
  if (!job.is_finished) check_memory_fits(job.config);
  return job;
}

PretrainJob prepare(PretrainConfig config) {
  return prepare(std::move(config), [](PretrainJob& job) {
    expect_named_tokenizer(job.start, job.config.data);
    resolve_vocabulary(job.config.model, job.config.data);
    open_data(job);
  });
}

namespace {

// Reports the phases of a rank's saves.
std::function<void(SavePhase)> save_listener(const PretrainJob& job, int rank) {
  if (job.probe == nullptr) return job.at_save_phase;
  return [&job, rank](SavePhase phase) {
    if (job.at_save_phase) job.at_save_phase(phase);
    job.probe->reach(phase, rank);
  };
}

// The next steps. Where they are not finite, that is written down, so that a run that is started again knows.
std::span<const StepReport> advance(Trainer& trainer, RunSaver& saver, const std::atomic<int>& signal,
                                    const LoadedStart& loaded) {
  try {
    const std::span<const StepReport> reports = trainer.advance(&signal);
    if (std::any_of(reports.begin(), reports.end(), [](const StepReport& step) { return !step.skipped; }))
      saver.step_was_finite();
    return reports;
  } catch (const Error& error) {
    const std::optional<int64_t> failed = trainer.failed_step();
    if (!failed) throw;
    throw saver.not_finite(*failed, error, loaded);
  }
}

// Whether the run has lasted as long as it may; the clock of rank 0 decides for all.
bool is_late(Communicator& world, const PretrainJob& job) {
  const std::optional<double>& minutes = job.config.batch.exit_duration_in_mins;
  if (!minutes) return false;
  double late = seconds_since(job.began) > 60 * *minutes ? 1 : 0;
  ThreadPool pool(1);
  Stream host(Stream::Mode::Inline, pool);
  world.broadcast({&late, DType::F64, {1}}, 0, host);
  return late > 0;
}

}  // namespace

RunEnd pretrain(Communicator& world, const PretrainJob& job, RunObserver& observer,
                const std::atomic<int>& signal, const Measure& measure) {
  const PretrainConfig& config = job.config;
  const bool speaks = world.rank() == 0;
  check_same_data(world, *job.train);
  Trainer trainer(world, config, *job.train, job.valid.get());
  trainer.describe_data(job.fingerprint);
  const auto reach = [&](RunPart part) {
    if (job.probe != nullptr) job.probe->reach(part, trainer);
  };
  if (job.probe != nullptr) trainer.watch(job.probe->watch(world.rank()));
  RunSaver saver(world, trainer, config.checkpoint, job.start, speaks ? &observer : nullptr,
                 save_listener(job, world.rank()));
  reach(RunPart::Load);
  LoadedStart loaded = load_start(
      job.start, world, [&](const std::string& path) { return trainer.load(path, job.start.part); });
  for (const std::string& warning : loaded.warnings)
    if (speaks) observer.on_warning(warning);
  saver.loaded(job.start);
  trainer.measure_peak();
  RunReport report = trainer.report();
  report.changes = std::move(loaded.changes);
  report.processes = processes_of_ranks(world);
  if (speaks) observer.on_start(report);

  const auto tell_bad_records = [&] {
    if (!speaks || job.bad_records == nullptr) return;
    for (const std::string& news : job.bad_records->take_news()) observer.on_warning(news);
  };
  const auto due = [&](const std::optional<int64_t>& interval) {
    return interval && trainer.steps_done() % *interval == 0;
  };
  if (trainer.steps_done() < config.batch.train_iters && !trainer.wait_for_data(signal))
    return RunEnd::NotBegun;
  std::string told;  // of what graphs could not do
  while (trainer.steps_done() < config.batch.train_iters) {
    reach(RunPart::Step);
    for (const StepReport& step : advance(trainer, saver, signal, loaded))
      if (speaks) observer.on_step(step);
    reach(RunPart::Updated);
    tell_bad_records();
    if (speaks && trainer.capture_note() != told) {
      told = trainer.capture_note();
      observer.on_warning("--enable-cuda-graph: " + told);
    }
    const bool evaluates = due(config.eval.eval_interval);
    const bool is_last = trainer.steps_done() == config.batch.train_iters;
    if (job.valid && evaluates && !trainer.stop_agreed()) {
      reach(RunPart::Evaluate);
      if (const std::optional<EvalReport> eval = trainer.evaluate(&signal); eval && speaks)
        observer.on_eval(*eval);
    }
    if (measure && (evaluates || is_last) && !trainer.stop_agreed()) measure(trainer);
    if (speaks && trainer.stop_agreed() && ((job.valid && evaluates) || (measure && (evaluates || is_last))))
      observer.on_warning("the evaluation was left out, as a signal asks the run to stop");
    saver.poll();
    saver.check_when_due();
    if (due(config.checkpoint.save_interval)) {
      reach(RunPart::Save);
      saver.save();
      trainer.poll_stop(signal);  // a save may take long: do not begin another step, and save once more
    }
    if (trainer.stop_agreed() && trainer.steps_done() < config.batch.train_iters) {
      saver.finish();
      return RunEnd::Interrupted;
    }
    if (due(config.batch.exit_interval) || is_late(world, job)) break;
  }
  tell_bad_records();
  saver.finish();
  return RunEnd::Done;
}

}  // namespace trifold
