#include "train/finetune.h"

#include <filesystem>

#include "checkpoint/save_folder.h"
#include "config/commands/option_tables.h"
#include "config/commands/validate.h"
#include "config/subjects/model_family.h"
#include "core/clock.h"
#include "files/output_files.h"
#include "models/folders/open_model.h"
#include "run/ranks.h"
#include "text/corpus.h"
#include "train/evaluation.h"
#include "train/task_logits.h"

namespace trifold {

namespace {

HeadKind head_of(FinetuneTask task) {
  return task == FinetuneTask::Squad ? HeadKind::Span : HeadKind::Classes;
}

// The checkpoint with which the run is to begin: its own if it resumes.
CheckpointReader first_checkpoint(const FinetuneConfig& config) {
  const CheckpointConfig& checkpoint = config.run.checkpoint;
  if (config.train_data && checkpoint.auto_resume && checkpoint.save &&
      !checkpoints_in(*checkpoint.save).empty())
    return CheckpointReader(*checkpoint.save, Newest::Usable);
  return open_model(*checkpoint.load);
}

// The model of the task. A finetuned model keeps its classes; otherwise the training data define them.
ModelConfig tuned_model(const FinetuneConfig& config, const CheckpointModel& from) {
  ModelConfig model = from.model;
  if (!family_of_model(model).has_tasks)
    bad_input("{} is not a BERT: --load needs one from `pretrain --model-type bert`", from.directory);
  if (has_task_head(model) && model.bert_head != head_of(*config.task))
    bad_input("{} was tuned for a task other than --task {}", from.directory, name_of(*config.task));
  if (!has_task_head(model) && !config.train_data)
    bad_input("{} was not tuned for a task: give --train-data FILE to do so", from.directory);
  model.seq_length = config.seq_length.value_or(model.seq_length);
  if (model.seq_length > *model.max_position_embeddings)
    bad_input("--seq-length {} is more than the model's {} positions", model.seq_length,
              *model.max_position_embeddings);
  if (config.run.mesh.sequence_parallel && model.seq_length % config.run.mesh.tensor_model_parallel_size != 0)
    bad_input(
        "--sequence-parallel cuts each sample over --tensor-model-parallel-size {}, which does not divide "
        "its {} positions: leave it out, or give another --seq-length",
        config.run.mesh.tensor_model_parallel_size, model.seq_length);
  if (config.run.model.adapters.lora_rank) model.adapters = config.run.model.adapters;
  model.hidden_dropout = config.hidden_dropout.value_or(model.hidden_dropout);
  model.attention_dropout = config.attention_dropout.value_or(model.attention_dropout);
  if (model.bert_head == HeadKind::Classes || config.task != FinetuneTask::Classify) {
    model.bert_head = head_of(*config.task);
    return model;
  }
  model.bert_head = HeadKind::Classes;
  model.class_names = classes_of(read_labeled_texts(*config.train_data));
  if (model.class_names.size() < 2)
    bad_input("{}: all texts have the label '{}'; at least two classes are needed", *config.train_data,
              model.class_names[0]);
  return model;
}

std::unique_ptr<DataSource> source_of(const TaskData& data, const Tokenizer& tokenizer,
                                      const ModelConfig& model, int64_t passes, bool shuffled,
                                      uint64_t seed) {
  return std::make_unique<TaskSamples>(data.samples(), BertTokens(tokenizer).pad, model.seq_length, passes,
                                       shuffled, seed);
}

// Opens the passes of the whole run.
void open_training(PretrainJob& job, const TaskData& data, const Tokenizer& tokenizer) {
  PretrainConfig& config = job.config;
  const auto once = static_cast<int64_t>(data.samples().size());
  int64_t passes = config.batch.train_epochs.value_or(0);
  if (passes == 0) passes = config.batch.train_iters * *config.batch.global_batch_size / once + 1;
  job.train = source_of(data, tokenizer, config.model, passes, true, config.seed);
  if (config.batch.train_epochs)
    config = resolve_length(config, job.train->samples(), position_of(job.start));
}

void tell_scores(const FinetuneJob& job, const std::vector<double>& logits, int64_t step,
                 RunObserver& observer) {
  observer.on_scores(step, job.valid->scores(logits));
  if (!job.config.predictions) return;
  write_file("--predictions", *job.config.predictions, job.valid->predictions(logits));
}

// Loss and scores without training. Interrupted if a signal came before they were computed.
RunEnd evaluate_only(Communicator& world, FinetuneJob& job, RunObserver& observer,
                     const std::atomic<int>& signal) {
  const CheckpointModel from = describe_checkpoint(open_model(job.checkpoint));
  const PretrainConfig& run = job.config.run;
  Replica replica(world, run.mesh, job.model, from.dtype, 0);
  load_weights(replica, from.directory);
  TaskLogits logits(replica, job.model, job.valid_once->samples());
  const auto start = Clock::now();
  const std::optional<LossSums> sums = evaluate_model(replica, *job.valid_once, run.batch.micro_batch_size,
                                                      job.valid_once->samples(), false, &logits, &signal);
  if (!sums) return RunEnd::Interrupted;
  const std::vector<double>& all = logits.gather();
  if (world.rank() != 0) return RunEnd::Done;
  const double seconds = seconds_since(start);
  observer.on_eval({from.step, sums->mean_loss(), static_cast<int64_t>(sums->weight), seconds, "samples"});
  tell_scores(job, all, from.step, observer);
  return RunEnd::Done;
}

}  // namespace

FinetuneJob prepare(FinetuneConfig config) {
  FinetuneJob job;
  const CheckpointModel from = describe_checkpoint(first_checkpoint(config));
  job.checkpoint = from.directory;
  job.model = tuned_model(config, from);
  if (!config.train_data) {
    CheckpointModel tuned = from;
    tuned.model = job.model;
    expect_layout(tuned, config.run.mesh, config.run.batch.micro_batch_size);
  }
  DataConfig& data = config.run.data;
  inherit_tokenizer(data, from, true);
  // The finetuned checkpoint stores this path and may be used from another folder.
  for (std::optional<std::string>* file : {&data.tokenizer_model, &data.tokenizer_merges})
    if (*file) *file = std::filesystem::absolute(**file).string();
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(data, false);
  if (bert_vocabulary(*tokenizer) > *job.model.vocab_size)
    bad_input(
        "the model has {} tokens, the tokenizer and BERT's own are {}: name the tokenizer the model was "
        "trained with, --tokenizer-type",
        *job.model.vocab_size, bert_vocabulary(*tokenizer));
  if (config.predictions) check_writable_file("--predictions", *config.predictions);
  if (config.valid_data) {
    job.valid = read_task(*config.valid_data, config, job.model, *tokenizer);
    job.valid_once = source_of(*job.valid, *tokenizer, job.model, 1, false, 0);
  }
  if (config.train_data) {
    config.run.model = job.model;
    data.data_path = {*config.train_data};
    config.run = resolve(std::move(config.run));
    const std::unique_ptr<TaskData> train = read_task(*config.train_data, config, job.model, *tokenizer);
    job.run = prepare(config.run, [&](PretrainJob& run) { open_training(run, *train, *tokenizer); });
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
  if (!job.run) return evaluate_only(world, job, observer, signal);
  const bool is_reporter = world.rank() == 0;
  Measure measure;
  if (job.valid)
    measure = [&](Trainer& trainer) -> std::optional<double> {
      TaskLogits logits(trainer.replica(), job.model, job.valid_once->samples());
      const std::optional<EvalReport> report = trainer.evaluate(*job.valid_once, logits, &signal);
      if (!report) return std::nullopt;
      const std::vector<double>& all = logits.gather();
      if (is_reporter) {
        observer.on_eval(*report);
        tell_scores(job, all, report->step, observer);
      }
      return report->loss;
    };
  return pretrain(world, *job.run, observer, signal, measure);
}

}  // namespace trifold
