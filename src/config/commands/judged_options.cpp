// The options of commands that judge a trained model by the log-likelihoods it gives, and their checks.
#include <utility>

#include "config/commands/commands.h"
#include "config/options/bounds.h"
#include "config/options/problems.h"
#include "config/subjects/checkpoint.h"
#include "config/subjects/mesh.h"
#include "config/subjects/text.h"

namespace trifold {

namespace {

void add_judged(OptionTable& table, std::string& load, bool& load_ema, DataConfig& data) {
  table.group("Checkpoint");
  table.add("load", &load, "Folder of the checkpoint; it holds the model.")
      .need()
      .names("DIR", FileUse::Loaded);
  add_load_ema(table, load_ema);
  add_tokenizer_of_model(table, data);
}

void add_computation(OptionTable& table, std::optional<DType>& dtype) {
  table
      .add(
          "dtype", &dtype,
          "Data type of the computation. f64 gives log-likelihoods without errors of rounding, but is several times slower.")
      .absent("the type of the weights");
}

}  // namespace

OptionTable options_of(EvaluateTaskConfig& config) {
  OptionTable table;
  add_judged(table, config.load, config.load_ema, config.data);
  table.group("Task");
  table
      .add(
          "task", &config.task,
          "JSON lines of questions, {\"context\": TEXT, \"choices\": [TEXT, ...], \"answer\": INDEX}, or of texts, "
          "{\"text\": TEXT}.")
      .need()
      .reads("FILE")
      .of_host();
  table.add("micro-batch-size", &config.micro_batch_size, "Sequences per micro-batch.").range(1, kMaxSize);
  table
      .add(
          "seq-length", &config.seq_length,
          "The most tokens that the model is given: longer contexts lose their beginning, longer texts are cut. More "
          "than in training only with rotary positions or none.")
      .range(1, kMaxSize)
      .absent("as the model was trained");
  add_computation(table, config.dtype);
  add_mesh(table, config.mesh);
  table.group("Logging");
  table
      .add("log-likelihoods", &config.log_likelihoods,
           "Write a JSON line for each choice or text: its log-likelihood, the number of its tokens, and "
           "whether each is the likeliest.")
      .writes("FILE", {{"{\"item\":0,", "\"log_likelihood\":"}})
      .absent("none")
      .of_host();
  table.add("log-json", &config.log_json, "Append the result to this file.")
      .names("FILE", FileUse::Appended)
      .absent("none")
      .of_host();
  return table;
}

Findings findings(const EvaluateTaskConfig& config) {
  Problems problems = problems_of_options(config);
  check_mesh(config.mesh, problems);
  return problems.findings();
}

EvaluateTaskConfig resolve(EvaluateTaskConfig config) {
  throw_problems(problems(config));
  if (!config.mesh.data_parallel_size)
    config.mesh.data_parallel_size = static_cast<int>(data_parallel_size(config.mesh));
  return config;
}

OptionTable options_of(ServeConfig& config) {
  OptionTable table;
  add_judged(table, config.load, config.load_ema, config.data);
  table.group("Requests");
  table
      .add("port", &config.port,
           "Port of 127.0.0.1 at which requests are answered; 0: a free one, which is printed.")
      .range(0, 65535);
  add_computation(table, config.dtype);
  add_chat_template(table, config.data);
  add_sampling_ranks(table, config.tensor_model_parallel_size, config.threads_per_rank);
  return table;
}

Findings findings(const ServeConfig& config) {
  Problems problems = problems_of_options(config);
  return problems.findings();
}

ServeConfig resolve(ServeConfig config) {
  throw_problems(problems(config));
  return config;
}

}  // namespace trifold
