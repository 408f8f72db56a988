// The options of commands that use a trained recommender, and what is wrong with them as a whole.
#include "config/commands.h"
#include "config/option_groups.h"
#include "config/problems.h"

namespace trifold {

namespace {

void add_trained(OptionTable& table, TrainedRecommenderConfig& run) {
  table.group("Checkpoint and data");
  table.add("load", &run.load, "Folder of the checkpoint; it holds the model.").need().files("DIR");
  table
      .add("data", &run.data,
           "File or folder with the samples; of split-binary data, their test part is taken.")
      .need()
      .files("PATH")
      .of_host();
  table
      .add("data-format", &run.data_format,
           "Format of the data; auto goes by the name and the first line, as in recommend.")
      .one_of({"auto", "tsv", "csv", "csv-hex", "mlperf-bin", "hugectr-raw", "hugectr-raw-counts",
               "split-binary", "clicks"});
  table.add("id-policy", &run.id_policy, "What is done with an id that its table does not have.")
      .absent("as the model was trained");
  table.add("global-batch-size", &run.global_batch_size, "Samples computed at once, over all ranks.")
      .range(1, 1 << 30);
}

void add_ranks_of_trained(OptionTable& table, TrainedRecommenderConfig& run) {
  table.group("Ranks and tables");
  add_ranks(table, run.mesh);
  add_host(table, run.mesh);
  add_tables(table, run.placement);
}

}  // namespace

OptionTable options_of(ScoreConfig& config) {
  OptionTable table;
  add_trained(table, config.run);
  table.group("Predictions");
  table
      .add("output", &config.output,
           "File for a line of each sample, in the order of the data: its number, its label where there is "
           "one, and the probability of a click; - is the standard output.")
      .need()
      .files("FILE")
      .of_host();
  table.add("output-format", &config.output_format, "Format of the output.")
      .absent("by the name, .csv or .jsonl; csv for -");
  add_ranks_of_trained(table, config.run);
  return table;
}

OptionTable options_of(EvaluateRecommenderConfig& config) {
  OptionTable table;
  add_trained(table, config.run);
  table.group("Evaluation");
  table
      .add("group-by", &config.group_by,
           "Also measure the AUC within each group of samples whose first id in this table is the same, such "
           "as a user's, and its mean by number of samples (GAUC).")
      .takes("TABLE")
      .absent("no groups");
  table.add("json", &config.json, "Write the results to this file.").files("FILE").absent("none").of_host();
  add_ranks_of_trained(table, config.run);
  return table;
}

std::vector<Problem> problems(const ScoreConfig& config) {
  ScoreConfig copy = config;
  Problems problems(options_of(copy));
  const std::string& output = config.output;
  if (!config.output_format && !output.empty() && output != "-" && !output.ends_with(".csv") &&
      !output.ends_with(".jsonl"))
    problems.about("output", "output-format")
        .wrong("--output {}: the name ends in neither .csv nor .jsonl", output)
        .right("give --output-format csv or jsonl");
  return problems.take();
}

ScoreConfig resolve(ScoreConfig config) {
  throw_problems(problems(config));
  if (!config.output_format)
    config.output_format = config.output.ends_with(".jsonl") ? ScoreFormat::Jsonl : ScoreFormat::Csv;
  return config;
}

std::vector<Problem> problems(const EvaluateRecommenderConfig& config) {
  EvaluateRecommenderConfig copy = config;
  return Problems(options_of(copy)).take();
}

EvaluateRecommenderConfig resolve(EvaluateRecommenderConfig config) {
  throw_problems(problems(config));
  return config;
}

}  // namespace trifold
