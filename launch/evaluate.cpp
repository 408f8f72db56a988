#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string_view>

#include "comm/shared_error.h"
#include "config/commands/option_tables.h"
#include "config/subjects/model_family.h"
#include "core/clock.h"
#include "core/printable.h"
#include "files/output_files.h"
#include "launch/commands.h"
#include "launch/progress.h"
#include "models/folders/open_model.h"
#include "models/language_family.h"
#include "monitor/json_log.h"
#include "monitor/language_records.h"
#include "run/ranks.h"
#include "run/terms.h"
#include "text/corpus.h"
#include "train/class_counts.h"
#include "train/evaluation.h"
#include "train/position_losses.h"
#include "train/pretrain.h"
#include "train/start/checkpoint_model.h"

namespace trifold::launch {

namespace {

// The model and the samples to evaluate.
struct Evaluation {
  CheckpointModel checkpoint;
  std::unique_ptr<DataSource> source;
  std::shared_ptr<BadRecords> bad_records;  // records that the source skips; null: none
  DataNotes notes;
  int64_t wanted = 0;   // samples requested
  int64_t samples = 0;  // samples that exist among them
  RunTerms terms;       // must be the same on all ranks
};

// Writes and prints the losses by position.
void tell_positions(const std::string& path, std::span<const PositionLoss> positions) {
  write_file("--loss-by-position", path, position_table(positions));
  fmt::print("loss by position\n");
  for (const PositionRun& run : doubling_runs(positions))
    fmt::print("  {:>14}  {:.4f}\n", fmt::format("{}-{}", run.begin, run.end - 1), run.loss);
}

// A line for each cross entropy with labels.
void tell_classes(const EvalReport& report, std::string_view part) {
  for (const ClassShare& share : report.classes) {
    if (share.labels == 0) continue;
    const std::string among =
        report.top_k ? fmt::format("  top-{} {:.6f}", *report.top_k, share.among / share.labels) : "";
    fmt::print("{} accuracy {:.6f}{}  ({} labels of {})\n", part, share.likeliest / share.labels, among,
               static_cast<int64_t>(share.labels), printable(share.name));
  }
}

// Throws the same BadInput on all ranks if --top-k is given to a model that counts no classes.
void expect_classes(const EvaluateConfig& config, const ClassCounts& counts, const Communicator& world) {
  if (!config.top_k || counts.any()) return;
  throw SharedError(
      fmt::format("--top-k: the model of {} has no cross entropy of classes: leave it out", config.load),
      ErrorKind::BadInput, world.size(), world.rank() == 0);
}

// BadInput for mistakes in files and options.
Evaluation prepare(const EvaluateConfig& config) {
  Evaluation job;
  CheckpointModel& checkpoint = job.checkpoint = describe_checkpoint(open_model(config.load));
  if (has_task_head(checkpoint.model))
    bad_input("{} was tuned for a task: trifold finetune --load {} --valid-data FILE ... evaluates it",
              checkpoint.directory, config.load);
  const ModelFamily& family = family_of_model(checkpoint.model);
  if (family.reads_text && !config.data.arrays.empty())
    bad_input("--arrays: {} reads text: give --data-path instead", checkpoint.directory);
  if (!family.reads_text && !config.data.data_path.empty())
    bad_input("--data-path: {} reads arrays: give --arrays instead", checkpoint.directory);
  if (!family.reads_text && (config.seq_length || config.loss_by_position))
    bad_input("--{}: {} has samples of arrays, not sequences: leave it out",
              config.seq_length ? "seq-length" : "loss-by-position", checkpoint.directory);
  if (family.reads_text && config.top_k)
    bad_input("--top-k: {} has no labels of classes but tokens: leave it out", checkpoint.directory);
  if (const auto check_micro_batch = language_family(checkpoint.model).check_micro_batch)
    check_micro_batch(checkpoint.model, config.micro_batch_size);
  set_length(checkpoint, config.seq_length);
  expect_layout(checkpoint, config.mesh, config.micro_batch_size);
  DataConfig data = config.data;
  inherit_tokenizer(data, checkpoint, open_tokenizer(data) != nullptr);
  const Split part = config.part;
  const std::unique_ptr<TrainingText> text =
      language_family(checkpoint.model).open_text(checkpoint.model, data, accumulate_type(checkpoint.dtype));
  const TrainingText& corpus = *text;
  if (!corpus.has(part)) bad_input("--split {} leaves the {} part empty", data.split, part_name(part));
  if (!config.eval_iters && corpus.weighted())
    bad_input("a blend with weights has no single pass: give --eval-iters, or leave out the weights");
  const int64_t batch = config.micro_batch_size * *config.mesh.data_parallel_size;
  job.wanted = config.eval_iters ? *config.eval_iters * batch : std::numeric_limits<int64_t>::max();
  job.source = corpus.weighted() ? corpus.source(part, checkpoint.model.seq_length, job.wanted, 0)
                                 : corpus.passes(part, checkpoint.model.seq_length, 1, 0, job.wanted);
  job.bad_records = corpus.bad_records();
  job.notes = corpus.notes();
  job.samples = std::min(job.wanted, job.source->samples());

  if (config.log_json) check_writable_file("--log-json", *config.log_json);
  if (config.loss_by_position) {
    if (family_of_model(checkpoint.model).has_pairs)
      bad_input("--loss-by-position: {} predicts masked tokens, at few positions: leave it out",
                checkpoint.directory);
    check_writable_file("--loss-by-position", *config.loss_by_position);
  }
  EvaluateConfig asked = config;
  job.terms.add(options_of(asked));
  job.terms.add(data, fingerprint_of(data));
  job.terms.add_checkpoint(checkpoint.directory);
  return job;
}

}  // namespace

int run(const EvaluateConfig& config, Ranks& ranks) {
  Evaluation job;
  ranks.agree([&] { job = prepare(config); });
  ranks.compare(job.terms);
  const CheckpointModel& checkpoint = job.checkpoint;
  const Split part = config.part;
  const auto start = Clock::now();
  std::optional<LossSums> sums;  // set in the process of rank 0, like the next
  std::vector<PositionLoss> positions;
  std::vector<ClassShare> classes;
  ranks.run(config.mesh, [&](Communicator& world) {
    Replica replica(world, config.mesh, checkpoint.model, checkpoint.dtype, 0);
    load_weights(replica, checkpoint.directory, config.load_ema);
    std::optional<PositionLosses> watch;
    if (config.loss_by_position) watch.emplace(replica, checkpoint.model.seq_length);
    ClassCounts counts(replica, config.top_k.value_or(1));
    expect_classes(config, counts, world);
    const std::optional<LossSums> all = evaluate_model(
        replica, *job.source, config.micro_batch_size, job.samples,
        family_of_model(checkpoint.model).has_pairs, watch ? &*watch : nullptr, nullptr, &counts);
    if (all)
      expect_counted(*all, world, fmt::format("the {} samples of the {} part", job.samples, part_name(part)));
    std::span<const PositionLoss> found;
    if (watch && all) found = watch->gather();
    if (counts.any() && all) counts.gather();
    if (world.rank() != 0) return;
    sums = all;
    classes = counts.shares();
    positions.assign(found.begin(), found.end());
  });
  const double seconds = seconds_since(start);
  if (!sums) return kDone;
  for (const std::string& line : job.notes.files)
    fmt::print(stderr, "data        {}\n", printable_message(line));
  for (const std::string& warning : job.notes.warnings) print_warning(printable_message(warning));
  if (job.bad_records != nullptr)
    for (const std::string& news : job.bad_records->take_news())
      fmt::print(stderr, "{}\n", printable_message(news));
  if (config.eval_iters && job.samples < job.wanted)
    fmt::print(stderr,
               "--eval-iters {} is more than the {} part has: all of its {} samples are taken, once\n",
               *config.eval_iters, part_name(part), job.samples);
  const ModelFamily& family = family_of_model(checkpoint.model);
  EvalReport report;
  report.step = checkpoint.step;
  report.loss = sums->mean_loss();
  report.tokens = static_cast<int64_t>(sums->weight);
  report.seconds = seconds;
  report.unit = family.loss_unit;
  report.classes = classes;
  report.top_k = config.top_k;
  if (config.log_json) JsonLog(*config.log_json).write(record_of(report, std::string(name_of(config.part))));
  const std::string perplexity =
      family.reads_text ? fmt::format("  perplexity {:.4f}", std::exp(report.loss)) : "";
  fmt::print("{} loss {:.6f}{}  ({} {} of {}, step {}, {:.1f} s)\n", part_name(part), report.loss, perplexity,
             report.tokens, report.unit, checkpoint.directory, report.step, seconds);
  tell_classes(report, part_name(part));
  if (config.loss_by_position) tell_positions(*config.loss_by_position, positions);
  return kDone;
}

}  // namespace trifold::launch
