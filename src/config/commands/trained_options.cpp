// The options of commands that use a trained recommender, and the checks of their combinations.
#include <utility>

#include "config/commands/commands.h"
#include "config/options/problems.h"
#include "config/subjects/mesh.h"
#include "config/subjects/recommenders/recommender.h"
#include "core/function_ref.h"
#include "core/suffix.h"

namespace trifold {

namespace {

constexpr double kMostRanks = 1024;  // more ranks would only wait for each other

void add_trained(OptionTable& table, TrainedRecommenderConfig& run) {
  table.group("Checkpoint and data");
  table.add("load", &run.load, "Folder of the checkpoint; it holds the model.")
      .need()
      .names("DIR", FileUse::Loaded);
  table.add("data", &run.data, "File or folder of samples; for split-binary data, the test part.")
      .need()
      .reads("PATH")
      .of_host();
  table
      .add("data-format", &run.data_format,
           "Format of the data; auto infers it from the name and the first line.")
      .one_of({"auto", "tsv", "csv", "csv-hex", "mlperf-bin", "hugectr-raw", "hugectr-raw-counts",
               "split-binary", "clicks"});
  table
      .add(
          "dictionaries-of", &run.dictionaries_of,
          "Preprocess the data first, text, Parquet or arrays, with the columns, the transform and the ids of this "
          "folder of preprocess.")
      .reads("DIR")
      .absent("the folder that the model was trained on, where it is needed and still there")
      .of_all_hosts();
  table
      .add(
          "max-malformed", &run.max_malformed,
          "Malformed lines or rows of raw data are left out up to this fraction of the data; more is an error.")
      .range(0, 1)
      .absent("that of the training run or of --dictionaries-of, otherwise 0.01");
  table.add("id-policy", &run.id_policy, "Treatment of ids that are out of range for their table.")
      .absent("as the model was trained");
  table.add(
      "no-correct-negatives", &run.no_correct_negatives,
      "Do not correct the log odds of a model that was trained on data of preprocess --drop-negatives.");
  table.add("global-batch-size", &run.global_batch_size, "Samples per batch over all ranks.")
      .range(1, 1 << 30);
}

// `add_own` adds the command's own group.
OptionTable options_of_trained(TrainedRecommenderConfig& run, FunctionRef<void(OptionTable&)> add_own) {
  OptionTable table;
  add_trained(table, run);
  add_own(table);
  table.group("Ranks and tables");
  add_ranks(table, run.mesh);
  table.change("ranks")
      .range(1, kMostRanks)
      .compares(Relation::AtMost, "global-batch-size", {}, "give each rank at least one sample");
  add_host(table, run.mesh);
  add_tables(table, run.placement);
  return table;
}

}  // namespace

OptionTable options_of(ScoreConfig& config) {
  return options_of_trained(config.run, [&](OptionTable& table) {
    table.group("Predictions");
    table
        .add("output", &config.output,
             "File with one line per row of the data, in their order: its number, its label if there is one, "
             "and the probability of a click; - is the standard output.")
        .need()
        .writes("FILE",
                {{"sample,", "probability"}, {"{\"sample\":0,", "\"probability"}, {"PAR1", "trifold score"}})
        .of_host();
    table
        .add(
            "keep", &config.keep,
            "Columns of the data, with texts of any kind, that the output has too, before the label. A folder of "
            "preprocess has those that its option --keep named.")
        .takes("COLUMN,...")
        .absent("none");
    table.add("output-format", &config.output_format, "Format of the output.")
        .absent("from the name, .csv, .jsonl or .parquet; csv for -");
  });
}

OptionTable options_of(EvaluateRecommenderConfig& config) {
  return options_of_trained(config.run, [&](OptionTable& table) {
    table.group("Evaluation");
    table
        .add(
            "group-by", &config.group_by,
            "Also measure the AUC within groups of samples that have the same value in this column, such as a "
            "user's, and its mean weighted by samples (GAUC). Of a bag the first value counts; samples without a "
            "value are in no group. If --data is a file to be preprocessed, the column need not be a feature.")
        .takes("COLUMN")
        .absent("no groups");
    table
        .add(
            "metric-at-k", &config.metric_at_k,
            "Also measure NDCG and hit rate of the first K samples by score in each group, averaged over the "
            "groups with a click.")
        .takes("K,...")
        .absent("none")
        .only_with("group-by");
    table
        .add("unlabelled", &config.unlabelled,
             "Rows without a label: left out (skip), with the label 0 (negative), or malformed.")
        .one_of({"skip", "negative", "malformed"});
    table.add("json", &config.json, "Write the results to this file.")
        .writes("FILE", {json_mark("evaluate")})
        .absent("none")
        .of_host();
  });
}

Findings findings(const ScoreConfig& config) {
  Problems problems = problems_of_options(config);
  const std::string& output = config.output;
  if (!config.output_format && !output.empty() && output != "-" && !has_suffix(output, ".csv") &&
      !has_suffix(output, ".jsonl") && !has_suffix(output, ".parquet"))
    problems.about("output", "output-format")
        .wrong("--output {}: the name ends in none of .csv, .jsonl and .parquet", output)
        .right("give --output-format csv, jsonl or parquet");
  return problems.findings();
}

ScoreConfig resolve(ScoreConfig config) {
  throw_problems(problems(config));
  if (!config.output_format)
    config.output_format = has_suffix(config.output, ".jsonl")     ? ScoreFormat::Jsonl
                           : has_suffix(config.output, ".parquet") ? ScoreFormat::Parquet
                                                                   : ScoreFormat::Csv;
  return config;
}

Findings findings(const EvaluateRecommenderConfig& config) {
  Problems problems = problems_of_options(config);
  return problems.findings();
}

EvaluateRecommenderConfig resolve(EvaluateRecommenderConfig config) {
  return without_problems(std::move(config));
}

}  // namespace trifold
