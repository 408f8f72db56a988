#include <fmt/core.h>

#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "config/commands/commands.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/printable.h"
#include "core/read_json.h"
#include "files/output_files.h"
#include "launch/commands.h"
#include "launch/process/signals.h"
#include "launch/say.h"
#include "models/folders/open_model.h"
#include "monitor/json_log.h"
#include "run/ranks.h"
#include "run/terms.h"
#include "train/evaluation.h"
#include "train/judge/likelihoods.h"
#include "train/judge/task_scores.h"
#include "train/sampling/continuation.h"
#include "train/start/checkpoint_model.h"

namespace trifold::launch {

namespace {

struct TaskJob {
  CheckpointModel checkpoint;
  std::vector<TaskItem> items;
  TaskRequests task;
  std::unique_ptr<RequestSamples> samples;
  RunTerms terms;  // must be the same on all ranks

  bool has_questions() const { return items.front().is_question(); }
};

// Samples are shorter than the model allows where shorter ones are as efficient; context and tensor ranks divide them.
TaskJob prepare(const EvaluateTaskConfig& config) {
  TaskJob job;
  CheckpointModel& checkpoint = job.checkpoint = describe_checkpoint(open_model(config.load));
  expect_text_model(checkpoint);
  set_length(checkpoint, config.seq_length);
  checkpoint.dtype = config.dtype.value_or(checkpoint.dtype);
  const std::unique_ptr<Tokenizer> tokenizer = tokenizer_of(checkpoint, config.data);
  job.items = read_task(config.task);
  job.task =
      requests_of(job.items, RequestEncoder(*tokenizer, start_token(*tokenizer), checkpoint.model.seq_length),
                  config.task);
  const int64_t unit =
      int64_t{2} * config.mesh.context_parallel_size * config.mesh.tensor_model_parallel_size;
  checkpoint.model.seq_length = length_of_samples(job.task.requests, checkpoint.model.seq_length, unit);
  expect_layout(checkpoint, config.mesh, config.micro_batch_size);
  job.samples = std::make_unique<RequestSamples>(job.task.requests, checkpoint.model.seq_length);
  if (config.log_json) check_writable_file("--log-json", *config.log_json);
  if (config.log_likelihoods) check_writable_file("--log-likelihoods", *config.log_likelihoods);
  EvaluateTaskConfig asked = config;
  job.terms.add(options_of(asked));
  job.terms.add_file("--task", config.task);
  job.terms.add({"the tokenizer", tokenizer->fingerprint()});
  job.terms.add_checkpoint(checkpoint.directory);
  return job;
}

// A line for each choice or text.
std::string lines_of(const TaskJob& job, const std::vector<JudgedText>& texts) {
  std::string lines;
  for (const JudgedText& text : texts) {
    nlohmann::ordered_json line{{"item", text.owner.item}};
    if (job.has_questions()) line["choice"] = text.owner.choice;
    line["log_likelihood"] = text.log_likelihood;
    line["tokens"] = text.tokens;
    line["greedy"] = text.greedy;
    lines += json_text(line) + "\n";
  }
  return lines;
}

nlohmann::ordered_json error_json(const MeanWithError& share) {
  return share.error ? nlohmann::ordered_json(*share.error) : nlohmann::ordered_json();
}

std::string share_text(const MeanWithError& share) {
  return share.error ? fmt::format("{:.6f} (standard error {:.6f})", share.mean, *share.error)
                     : fmt::format("{:.6f}", share.mean);
}

// Prints the figures and returns them for the log.
nlohmann::ordered_json tell(const TaskJob& job, const std::vector<JudgedText>& texts, double seconds) {
  const std::string by = fmt::format("of {}, step {}, {:.1f} s", printable(job.checkpoint.directory),
                                     job.checkpoint.step, seconds);
  if (job.has_questions()) {
    const QuestionScores scores = question_scores(job.items, texts);
    fmt::print("accuracy {}  normalised by length {}  ({} questions, {} choices {})\n",
               share_text(scores.accuracy), share_text(scores.normalised), job.items.size(), texts.size(),
               by);
    return {{"questions", job.items.size()},
            {"acc", scores.accuracy.mean},
            {"acc_stderr", error_json(scores.accuracy)},
            {"acc_norm", scores.normalised.mean},
            {"acc_norm_stderr", error_json(scores.normalised)}};
  }
  const TextScores scores = text_scores(job.items, texts);
  fmt::print(
      "bits per byte {:.6f}  perplexity of bytes {:.6f}, of words {:.4f}  ({} texts, {} bytes, {} words, {} tokens {})\n",
      scores.bits_per_byte(), scores.byte_perplexity(), scores.word_perplexity(), job.items.size(),
      scores.bytes, scores.words, scores.tokens, by);
  return {{"texts", job.items.size()},
          {"bytes", scores.bytes},
          {"words", scores.words},
          {"tokens", scores.tokens},
          {"log_likelihood", scores.log_likelihood},
          {"word_perplexity", finite_number(scores.word_perplexity())},
          {"byte_perplexity", finite_number(scores.byte_perplexity())},
          {"bits_per_byte", finite_number(scores.bits_per_byte())}};
}

}  // namespace

int run(const EvaluateTaskConfig& config, Ranks& ranks) {
  TaskJob job;
  ranks.agree([&] { job = prepare(config); });
  ranks.compare(job.terms);
  const std::atomic<int>& signal = catch_signals();
  const auto start = Clock::now();
  bool is_reporter = false;  // the process of rank 0
  std::optional<std::vector<JudgedText>> texts;
  ranks.run(config.mesh, [&](Communicator& world) {
    Replica replica(world, config.mesh, job.checkpoint.model, job.checkpoint.dtype, 0);
    load_weights(replica, job.checkpoint.directory, config.load_ema);
    Likelihoods likelihoods(replica, job.task.requests, *job.samples);
    const bool done = evaluate_model(replica, *job.samples, config.micro_batch_size, job.samples->samples(),
                                     false, &likelihoods, &signal)
                          .has_value();
    std::span<const Likelihood> found;
    if (done) found = likelihoods.gather();
    if (world.rank() != 0) return;
    is_reporter = true;
    if (done) texts = judged_texts(job.items, job.task, found);
  });
  if (!is_reporter) return kDone;
  if (!texts) {
    say(stderr, "trifold: stopped on a signal before all requests were computed\n");
    return kFailed;
  }
  if (config.log_likelihoods) write_file("--log-likelihoods", *config.log_likelihoods, lines_of(job, *texts));
  const nlohmann::ordered_json values = tell(job, *texts, seconds_since(start));
  if (config.log_json)
    JsonLog(*config.log_json).write({.step = job.checkpoint.step, .part = "task", .values = values});
  return kDone;
}

}  // namespace trifold::launch
