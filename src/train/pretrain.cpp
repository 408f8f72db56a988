#include "train/pretrain.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "config/commands/option_tables.h"
#include "config/commands/validate.h"
#include "config/fields/pipeline_choice.h"
#include "core/read_json.h"
#include "files/file_memory.h"
#include "files/output_files.h"
#include "mesh/mesh_sizes.h"
#include "models/adapters/peft_folder.h"
#include "models/folders/open_model.h"
#include "models/hugging_face/hugging_face.h"
#include "models/language_family.h"
#include "plan/memory_fit.h"
#include "run/changed_options.h"
#include "run/device.h"
#include "run/loop.h"
#include "run/ranks.h"
#include "tasks/bert_samples.h"
#include "text/corpus.h"
#include "train/mock_text.h"
#include "train/sampling/continuation.h"
#include "train/start/checkpoint_model.h"
#include "train/start/model_start.h"

namespace trifold {

void resolve_vocabulary(ModelConfig& model, DataConfig& data) {
  if (const auto read_sizes = language_family(model).read_sizes) return read_sizes(model);
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(data);
  if (!tokenizer) {
    if (!model.vocab_size)
      bad_input("--vocab-size is needed: {} the size of its vocabulary",
                data.mock_data ? "--mock-data does not have" : "a .bin/.idx data set does not record");
    return;
  }
  // A checkpoint stores the path of the tokenizer's model and may be used from another folder.
  for (std::optional<std::string>* file : {&data.tokenizer_model, &data.tokenizer_merges})
    if (*file) *file = std::filesystem::absolute(**file).string();
  if (!data.tokenizer_type) data.tokenizer_type = TokenizerType::Byte;  // the only one that needs no file
  const LanguageFamily& family = language_family(model);
  const int64_t needed = family.vocabulary(*tokenizer);
  if (!model.vocab_size) model.vocab_size = needed;
  if (*model.vocab_size < needed)
    bad_input("--vocab-size {} is smaller than the tokenizer's {}{}; leave it out, or give at least {}",
              *model.vocab_size, needed, family.own_tokens, needed);
}

namespace {

// Whether a file of the user defines the plan, or the costs for which it is optimised.
bool reads_plan_files(const PipelineConfig& pipeline) {
  return schedule_from_file(pipeline) || pipeline.schedule_costs;
}

// BadInput if a loaded model has no tokenizer: text would be read as bytes, which is wrong unless the model was trained
// on bytes.
void expect_named_tokenizer(const RunStart& start, const DataConfig& data) {
  if (!start.from || data.tokenizer_type || open_tokenizer(data) == nullptr) return;
  std::optional<CheckpointModel> from;
  try {
    from = describe_checkpoint(checkpoint_of(start));
  } catch (const Error&) {
    return;  // check_start reports the mistake, or falls back
  }
  const std::optional<TokenizerType> type = from->data.tokenizer_type;
  if (type == TokenizerType::Byte) return;
  const std::string named = !type ? "on token files"
                            : from->data.tokenizer_model
                                ? fmt::format("with the tokenizer {}", *from->data.tokenizer_model)
                                : fmt::format("with the tokenizer {}", name_of(*type));
  bad_input(
      "{} was trained {}, and text would become bytes here: give --tokenizer-type and --tokenizer-model, or "
      "--tokenizer-type byte if bytes are meant",
      from->directory, named);
}

// Opens the data for whole passes, which determine the length of the run.
void open_passes(PretrainJob& job, const TrainingText& corpus) {
  PretrainConfig& config = job.config;
  if (corpus.weighted())
    bad_input(
        "--train-epochs {}: a weighted blend draws from each path by its weight and has no single pass; give "
        "--train-iters, or leave out the weights",
        *config.batch.train_epochs);
  if (corpus.streams())
    bad_input(
        "--train-epochs {}: text that is streamed (folders, JSON lines, packed files, and plain text larger "
        "than 64 MiB) has no known number of samples; give --train-iters, or write .bin/.idx files first "
        "with 'trifold tokenize'",
        *config.batch.train_epochs);
  job.train = corpus.passes(Split::Train, config.model.seq_length, *config.batch.train_epochs, config.seed);
  const int64_t samples = job.train->samples(), batch = *config.batch.global_batch_size;
  const BatchSizes sizes(ramp_of(config.batch), batch);
  const int64_t left = samples - sizes.samples_of(sizes.whole_steps(samples));
  if (job.train->array_bytes(1) > 0 && left != 0)
    bad_input(
        "--train-epochs {} has {} samples, and --global-batch-size {} leaves {} for the last step, whose batch cannot be "
        "filled up with arrays: give a --global-batch-size that divides {}, or --train-iters",
        *config.batch.train_epochs, samples, batch, left, samples);
  config = resolve_length(config, job.train->samples(), position_of(job.start));
}

// One pass over the validation split, so that no sample counts twice; a weighted blend has no passes, and has the
// samples that --eval-iters requests instead.
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

// The text for a part of the data. --train-data-path and --valid-data-path are whole parts.
std::unique_ptr<TrainingText> open_text(const PretrainConfig& config, Split part) {
  if (config.data.mock_data) return std::make_unique<MockText>(config.model);
  DataConfig data = config.data;
  if (!data.train_data_path.empty()) {
    data.data_path = part == Split::Train ? data.train_data_path : data.valid_data_path;
    data.split = part == Split::Train ? "1,0,0" : "0,1,0";
    if (part != Split::Train) data.data_schedule.reset();
  }
  return language_family(config.model)
      .open_text(config.model, data, accumulate_type(compute_type(config.precision)));
}

void open_data(PretrainJob& job) {
  const std::unique_ptr<TrainingText> text = open_text(job.config, Split::Train);
  const TrainingText& corpus = *text;
  const PretrainConfig& config = job.config;
  job.bad_records = corpus.bad_records();
  job.notes = corpus.notes();
  if (config.batch.train_epochs) {
    open_passes(job, corpus);
  } else {
    const BatchSizes sizes(ramp_of(config.batch), *config.batch.global_batch_size);
    const int64_t samples = sizes.samples_of(config.batch.train_iters);
    job.train = corpus.source(Split::Train, config.model.seq_length, samples, config.seed);
  }
  if (!config.eval.eval_interval || config.eval.eval_iters == 0) return;
  if (config.data.train_data_path.empty())
    job.valid = open_validation(config, corpus);
  else
    job.valid = open_validation(config, *open_text(config, Split::Valid));
}

// BadInput if no family of transformers has the model that --save-hf is to write.
void check_family(const PretrainJob& job) {
  std::optional<std::string> former;
  if (job.start.from)
    former =
        former_family(job.start.may_fall_back ? checkpoint_of(job.start) : open_weights(*job.start.from));
  // With adapters, the folders are of these alone.
  if (job.config.model.adapters.lora_rank)
    expect_peft_layers(job.config.model, job.config.checkpoint.hugging_face_family, former);
  else
    family_for(job.config.model, job.config.checkpoint.hugging_face_family, former);
}

// RunStart::computation of a job; `also` is included.
std::string computation_of(const PretrainJob& job, std::string_view also) {
  PretrainConfig config = job.config;
  const std::string from = fmt::format("{}\nfrom {} {}\n{}", also, job.start.from.value_or(""),
                                       static_cast<int>(job.start.part), json_text(to_json(job.fingerprint)));
  return digest_of_options(options_of(config), from);
}

}  // namespace

PretrainJob prepare(PretrainConfig config, const std::function<void(PretrainJob&)>& open_data,
                    std::string_view also, RanksHere ranks) {
  PretrainJob job;
  job.config = std::move(config);
  const CheckpointConfig& checkpoint = job.config.checkpoint;
  Preparation files;
  std::optional<int64_t> first_step;  // unknown if the start has mistakes
  files.attempt([&] { check_device(job.config.mesh); });
  files.attempt([&] { job.start = choose_start(checkpoint, job.config.model); });
  if (!job.start.from) first_step = 0;
  files.attempt([&] {
    open_data(job);
    job.fingerprint = fingerprint_of(job.config.data);
    job.start.computation = computation_of(job, also);
    take_over_models(checkpoint, job.start);
  });
  const auto plan = [&job] {
    if (job.planned.empty()) job.planned = PlannedRuns(run_spec_here(job.config));
  };
  if (job.config.model.vocab_size && reads_plan_files(job.config.pipeline)) files.attempt(plan);
  if (job.start.from && job.config.model.vocab_size)
    files.attempt([&] { first_step = check_start(job.start, job.config, job.train.get(), job.fingerprint); });
  if (checkpoint.save_hf && job.config.model.vocab_size) files.attempt([&] { check_family(job); });
  files.check_outputs(job.start, checkpoint, job.config.log, first_step);
  if (job.config.zero.offloads() && !job.config.zero.offloads_to_host())
    files.attempt([&] { check_offload_folder(job.config.zero.offload.folder); });
  if (const auto& folder = job.config.mesh.cpu_offloading_folder)
    files.attempt([&] { check_memory_folder(Offloading::folder(*folder)); });
  if (const std::string& products = job.config.mesh.tune_products; products != "off")
    files.attempt([&] { check_writable_file("--tune-products", products); });
  files.finish();
  const BatchConfig& batch = job.config.batch;
  job.limits = {batch.train_iters, batch.exit_interval, batch.exit_duration_in_mins,
                job.config.eval.early_stop_patience};
  job.add_terms(options_of(job.config));
  job.terms.add(job.config.data, job.fingerprint);
  if (const auto& model = job.config.model.model)
    job.terms.add({"the file of --model", job.config.model.model_digest.value_or(""), *model});
  if (const auto& costs = job.config.pipeline.schedule_costs) job.terms.add_file("--schedule-costs", *costs);
  if (is_finished(job.start, job.config)) job.finished = all_steps_done(batch.train_iters);
  if (job.finished.empty()) job.finished = ended_early(job.start, job.limits);
  if (!job.finished.empty()) return job;
  plan();
  if (ranks == RanksHere::All) check_memory_fits(job.config, job.planned);
  return job;
}

PretrainJob prepare(PretrainConfig config, RanksHere ranks) {
  const auto open = [](PretrainJob& job) {
    expect_named_tokenizer(job.start, job.config.data);
    resolve_vocabulary(job.config.model, job.config.data);
    if (const auto check_micro_batch = language_family(job.config.model).check_micro_batch)
      check_micro_batch(job.config.model, job.config.batch.micro_batch_size);
    check_prompt(job.config.eval, job.config.data);
    open_data(job);
  };
  return prepare(std::move(config), open, {}, ranks);
}

namespace {

// One rank's run.
class PretrainRun final : public TrainingRun {
 public:
  // `observer` is null on all ranks but 0.
  PretrainRun(Communicator& world, const PretrainJob& job, RunObserver* observer, const Measure& measure)
      : job_(job),
        config_(job.config),
        observer_(observer),
        measure_(measure),
        trainer_(world, config_, job.planned, *job.train, job.valid.get()) {
    trainer_.describe_data(job.fingerprint);
  }

  Savable& state() override { return trainer_; }
  std::vector<std::string> load(const std::string& path, const RunStart& start) override {
    return trainer_.load(path, start.part, start.new_optimizer);
  }
  void begin(std::vector<std::string> changes, std::vector<std::string> processes) override {
    trainer_.measure_peak();
    RunReport report = trainer_.report();
    report.changes = std::move(changes);
    report.processes = std::move(processes);
    report.data = job_.notes.files;
    if (observer_ == nullptr) return;
    observer_->on_start(report);
    for (const std::string& warning : job_.notes.warnings) observer_->on_warning(warning);
    if (!trainer_.product_note().empty())
      observer_->on_warning("--tune-products: " + trainer_.product_note());
  }
  bool wait_for_data(const std::atomic<int>& signal) override { return trainer_.wait_for_data(signal); }
  bool advance(const std::atomic<int>& signal) override;
  int64_t steps_at_once() const override { return trainer_.steps_at_once(); }
  ClockSpan step_time() const override { return trainer_.step_time(); }
  std::optional<int64_t> failed_step() const override { return trainer_.failed_step(); }
  bool evaluation_due() const override { return validates() || measures(); }
  Evaluation evaluate(const std::atomic<int>& signal) override;
  BestEvaluation& best() override { return trainer_.best(); }
  void skip() override {
    const StepReport& step = trainer_.skip();
    if (observer_ != nullptr) observer_->on_step(step);
  }
  LossWatch& losses() override { return trainer_.losses(); }
  int64_t samples_of(int64_t steps) const override { return trainer_.samples_of(steps); }
  std::vector<int> work_groups() override {
    return pipeline_rank_of_ranks(trainer_.replica().mesh().sizes());
  }
  bool stop_agreed() const override { return trainer_.stop_agreed(); }
  void poll_stop(const std::atomic<int>& signal) override { trainer_.poll_stop(signal); }
  void watch(StepWatch& watch) override { trainer_.watch(&watch); }
  void tell_bad_records() {
    if (observer_ == nullptr || job_.bad_records == nullptr) return;
    for (const std::string& news : job_.bad_records->take_news()) observer_->on_warning(news);
  }

 private:
  bool interval_ends() const {
    const std::optional<int64_t>& interval = config_.eval.eval_interval;
    return interval && trainer_.steps_done() % *interval == 0;
  }
  bool validates() const { return job_.valid != nullptr && interval_ends(); }
  bool measures() const {
    return measure_ && (interval_ends() || trainer_.steps_done() == config_.batch.train_iters);
  }

  void sample(const std::atomic<int>& signal);

  const PretrainJob& job_;
  const PretrainConfig& config_;
  RunObserver* observer_;
  const Measure& measure_;
  Trainer trainer_;
  std::optional<PromptSample> sample_;  // on the rank that reports, from its first sample on
  std::string reported_note_;           // note on failed captures that was already reported
};

bool PretrainRun::advance(const std::atomic<int>& signal) {
  const std::span<const StepReport> steps = trainer_.advance(&signal);
  if (observer_ != nullptr) {
    for (const StepReport& step : steps) observer_->on_step(step);
    if (trainer_.capture_note() != reported_note_) {
      reported_note_ = trainer_.capture_note();
      observer_->on_warning("--enable-cuda-graph: " + reported_note_);
    }
  }
  tell_bad_records();
  return std::any_of(steps.begin(), steps.end(), [](const StepReport& step) { return !step.skipped(); });
}

// One rank computes; the others wait, so that all learn the same duration of an evaluation.
void PretrainRun::sample(const std::atomic<int>& signal) {
  Communicator& world = trainer_.replica().world();
  abort_on_error(world, [&] {
    if (observer_ != nullptr) {
      if (!sample_) sample_.emplace(trainer_.replica(), config_);
      observer_->on_sample(trainer_.steps_done(), sample_->draw(signal));
    }
    world.barrier();
  });
}

Evaluation PretrainRun::evaluate(const std::atomic<int>& signal) {
  Evaluation evaluation;
  if (validates()) {
    if (const std::optional<EvalReport> report = trainer_.evaluate(&signal)) {
      if (report->tokens > 0) evaluation.value = report->loss;
      if (observer_ != nullptr) observer_->on_eval(*report);
      if (config_.eval.sample_prompt) sample(signal);
    }
  }
  if (!measures() || trainer_.stop_agreed()) return evaluation;
  if (const std::optional<double> loss = measure_(trainer_)) evaluation.value = loss;
  return evaluation;
}

}  // namespace

RunEnd pretrain(Communicator& world, const PretrainJob& job, RunObserver& observer,
                const std::atomic<int>& signal, const Measure& measure) {
  check_same_data(world, *job.train);
  RunObserver* const mine = world.rank() == 0 ? &observer : nullptr;
  PretrainRun run(world, job, mine, measure);
  const RunEnd end = run_loop(world, run, job, job.config.log.watch, job.config.checkpoint, mine, signal);
  run.tell_bad_records();
  return end;
}

}  // namespace trifold
