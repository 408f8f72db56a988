#include "train/finetune.h"

#include <filesystem>

#include "checkpoint/save_folder.h"
#include "config/commands/option_tables.h"
#include "config/commands/validate.h"
#include "config/subjects/model_family.h"
#include "core/clock.h"
#include "files/output_files.h"
#include "models/folders/open_model.h"
#include "models/language_family.h"
#include "run/changed_options.h"
#include "run/ranks.h"
#include "train/evaluation.h"

namespace trifold {

namespace {

// Whether the run continues from its own checkpoints.
bool continues(const FinetuneConfig& config) {
  const CheckpointConfig& checkpoint = config.run.checkpoint;
  return config.train_data && checkpoint.auto_resume && checkpoint.save &&
         !checkpoints_in(*checkpoint.save).empty();
}

// The checkpoint with which the run is to begin: its own if it resumes.
CheckpointReader first_checkpoint(const FinetuneConfig& config) {
  if (continues(config)) return CheckpointReader(*config.run.checkpoint.save, Newest::Usable);
  return open_model(*config.run.checkpoint.load);
}

// Opens the passes of the whole run.
void open_training(PretrainJob& job, const TaskData& data) {
  PretrainConfig& config = job.config;
  const int64_t once = data.samples();
  int64_t passes = config.batch.train_epochs.value_or(0);
  if (passes == 0) passes = config.batch.train_iters * *config.batch.global_batch_size / once + 1;
  job.train = data.passes(passes, true, config.seed);
  job.notes = data.notes();
  if (config.batch.train_epochs)
    config = resolve_length(config, job.train->samples(), position_of(job.start));
}

// Evaluates by `compute`, given the watch of the task's measure (null: none), and reports the result.
template <class Compute>
std::optional<double> evaluate_task(Replica& replica, const FinetuneJob& job, RunObserver& observer,
                                    const Compute& compute) {
  const std::unique_ptr<TaskMeasure> measure = job.valid->measure(replica);
  std::optional<EvalReport> report = compute(measure ? &measure->watch() : nullptr);
  if (!report) return std::nullopt;
  if (measure) measure->gather();
  if (replica.world().rank() != 0) return report->loss;
  if (const char* unit = tuning_task(*job.config.task).loss_unit) report->unit = unit;
  observer.on_eval(*report);
  if (!measure) return report->loss;
  observer.on_scores(report->step, measure->scores());
  if (job.config.predictions) write_file("--predictions", *job.config.predictions, measure->predictions());
  return report->loss;
}

// Loss and scores without training. Interrupted if a signal came before they were computed.
RunEnd evaluate_only(Communicator& world, FinetuneJob& job, RunObserver& observer,
                     const std::atomic<int>& signal) {
  const CheckpointModel from = describe_checkpoint(open_model(job.checkpoint));
  const PretrainConfig& run = job.config.run;
  Replica replica(world, run.mesh, job.model, from.dtype, 0);
  load_weights(replica, from.directory);
  const auto start = Clock::now();
  const auto compute = [&](StepWatch* watch) -> std::optional<EvalReport> {
    const std::optional<LossSums> sums = evaluate_model(replica, *job.valid_once, run.batch.micro_batch_size,
                                                        job.valid_once->samples(), false, watch, &signal);
    if (!sums) return std::nullopt;
    EvalReport report{from.step, sums->mean_loss(), static_cast<int64_t>(sums->weight), seconds_since(start),
                      family_of_model(job.model).loss_unit};
    find_means(replica.model().reports, *sums, report.terms);
    return report;
  };
  return evaluate_task(replica, job, observer, compute) ? RunEnd::Done : RunEnd::Interrupted;
}

// BadInput if --load and --save are one folder: the run begins with the weights of --load.
void expect_other_folder(const CheckpointConfig& checkpoint) {
  if (checkpoint.load && checkpoint.save && *checkpoint.load == *checkpoint.save)
    bad_input(
        "--save {} is the folder of --load, whose weights the run begins with: give another; --auto-resume continues "
        "a run from the folder of --save",
        *checkpoint.save);
}

// The options of the tokenizer, which the checkpoint that the run begins with completes.
void complete_tokenizer(FinetuneConfig& config, const CheckpointModel& from) {
  DataConfig& data = config.run.data;
  inherit_tokenizer(data, from, true);
  if (continues(config) && !data.chat_date) data.chat_date = from.data.chat_date;
  // The finetuned checkpoint stores this path and may be used from another folder.
  for (std::optional<std::string>* file : {&data.tokenizer_model, &data.tokenizer_merges})
    if (*file) *file = std::filesystem::absolute(**file).string();
}

// BadInput if the tensor ranks cannot share the positions of a sample.
void expect_sharded_length(int64_t seq_length, const MeshConfig& mesh) {
  if (mesh.sequence_parallel && seq_length % mesh.tensor_model_parallel_size != 0)
    bad_input(
        "--sequence-parallel cuts each sample over --tensor-model-parallel-size {}, which does not divide "
        "its {} positions: leave it out, or give another --seq-length",
        mesh.tensor_model_parallel_size, seq_length);
}

// BadInput if the model lacks tokens of the tokenizer, or of its family.
void expect_vocabulary(const ModelConfig& model, const Tokenizer& tokenizer) {
  const LanguageFamily& family = language_family(model);
  if (const int64_t needed = family.vocabulary(tokenizer); needed > *model.vocab_size)
    bad_input(
        "the model has {} tokens, the tokenizer{} {}: name the tokenizer the model was trained with, "
        "--tokenizer-type",
        *model.vocab_size, family.own_tokens, needed);
}

}  // namespace

FinetuneJob prepare(FinetuneConfig config, RanksHere ranks) {
  FinetuneJob job;
  const TuningTask& task = tuning_task(*config.task);
  if (task.begins_anew && config.train_data) expect_other_folder(config.run.checkpoint);
  const CheckpointModel from = describe_checkpoint(first_checkpoint(config));
  job.checkpoint = from.directory;
  job.model = task.tuned_model(config, from);
  if (config.run.model.adapters.lora_rank) job.model.adapters = config.run.model.adapters;
  expect_sharded_length(job.model.seq_length, config.run.mesh);
  if (!config.train_data) {
    CheckpointModel tuned = from;
    tuned.model = job.model;
    expect_layout(tuned, config.run.mesh, config.run.batch.micro_batch_size);
  }
  complete_tokenizer(config, from);
  DataConfig& data = config.run.data;
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(data, task.ends_documents);
  expect_vocabulary(job.model, *tokenizer);
  if (task.complete != nullptr) task.complete(config, *tokenizer);
  if (config.predictions) check_writable_file("--predictions", *config.predictions);
  const DType dtype = config.train_data ? compute_type(config.run.precision) : from.dtype;
  const TaskContext context{config, job.model, *tokenizer, dtype};
  if (config.valid_data) {
    job.valid = task.read(*config.valid_data, context);
    job.valid_once = job.valid->passes(1, false, config.run.seed);
  }
  if (config.train_data) {
    if (task.begins_anew && config.run.checkpoint.load) config.run.checkpoint.finetune = true;
    config.run.model = job.model;
    data.data_path = {*config.train_data};
    config.run = resolve(std::move(config.run));
    job.train = task.read(*config.train_data, context);
    FinetuneConfig asked = config;
    job.run = prepare(
        config.run, [&](PretrainJob& run) { open_training(run, *job.train); },
        digest_of_options(options_of(asked), {}), ranks);
  }
  job.config = std::move(config);
  job.terms.add(options_of(job.config));
  if (!job.run) job.terms.add_checkpoint(job.checkpoint);
  if (job.config.train_data) job.terms.add("--train-data", fingerprint_of_paths({{*job.config.train_data}}));
  if (job.config.valid_data) job.terms.add("--valid-data", fingerprint_of_paths({{*job.config.valid_data}}));
  return job;
}

RunEnd finetune(Communicator& world, FinetuneJob& job, RunObserver& observer,
                const std::atomic<int>& signal) {
  const PretrainConfig& run = job.run ? job.run->config : job.config.run;
  for (const TaskData* data : {job.train.get(), job.valid.get()})
    if (data != nullptr && !data->complete(world, run, signal)) return RunEnd::Interrupted;
  if (!job.run) return evaluate_only(world, job, observer, signal);
  Measure measure;
  if (job.valid)
    measure = [&](Trainer& trainer) {
      return evaluate_task(trainer.replica(), job, observer, [&](StepWatch* watch) {
        return trainer.evaluate(*job.valid_once, watch, &signal);
      });
    };
  return pretrain(world, *job.run, observer, signal, measure);
}

}  // namespace trifold
