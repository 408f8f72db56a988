// The user's configuration of the commands for recommenders: `trifold recommend`, its plan, `preprocess`, `score` and
// `evaluate`. As in config.h, field names are the option names with underscores.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "config/fields/recommend_choices.h"

namespace trifold {

struct ClickDataConfig {
  std::string train_data = "synthetic";   // a file, a folder, or "synthetic"
  std::optional<std::string> valid_data;  // a file or a folder
  // auto | synthetic | one of click_formats() (clicks/click_files.h)
  std::string data_format = "auto";
  // Absent values come from the data if it contains them. Otherwise rows must be given (default for synthetic clicks:
  // 1000), and there are 13 dense features.
  std::optional<std::string> dictionaries_of;  // a folder of clicks whose columns and ids preprocessing uses
  std::optional<TableRows> table_rows;
  std::optional<NumberList> table_max_ids;  // per sample, for each table; 1
  std::optional<int64_t> dense_features;
  std::optional<DenseTransform> dense_transform;  // the format's
  std::optional<IdPolicy> id_policy;              // error
  std::optional<double> max_malformed;  // share of malformed lines of raw data; dictionaries_of's, or 0.01
  Unlabelled unlabelled = Unlabelled::Malformed;  // not Keep
  int64_t synthetic_samples = 200'000;
  double synthetic_zipf = 1.05;
  double synthetic_missing = 0;
  bool synthetic_constant = false;
  int synthetic_labels = 1;
  int64_t valid_samples = 0;  // number of last training samples used for validation; only without valid_data
};

struct DlrmConfig {
  int64_t embedding_dim = 16;
  double embedding_init_range = 0;  // 0: 1 / sqrt(rows)
  // For data whose ids are keys.
  int64_t key_admission = 1;
  KeyEviction key_eviction = KeyEviction::Oldest;
  NumberList bottom_mlp = {512, 256, 64, 16};
  NumberList top_mlp = {512, 256, 1};
  // For several labels.
  NumberList tower_mlp = {64, 1};
  MultiTask multi_task = MultiTask::SharedBottom;
  int mmoe_experts = 4;
  InteractionKind interaction = InteractionKind::Dot;
  bool interaction_self = false;
  bool wide = false;
  int cross_layers = 3;
  int64_t cross_rank = 512;
  Pooling pooling = Pooling::Sum;
  std::optional<std::string> init_weights;  // a safetensors file of initial weights
  std::optional<ColumnPairs> attention;     // bags pooled by attention, each with its candidate
  NumberList attention_mlp = {64, 32, 1};
  double dropout = 0;       // in the hidden layers of the MLPs
  bool batch_norm = false;  // in the hidden layers of the MLPs
  ClickLossKind loss = ClickLossKind::Bce;
  bool no_correct_negatives = false;  // predictions keep the odds of data with dropped negatives
};

struct ClickTrainingConfig {
  int64_t global_batch_size = 2048;
  std::optional<int64_t> train_iters;  // one epoch
  std::optional<int64_t> train_epochs;
  SampleOrder sample_order = SampleOrder::Shuffled;
  bool drop_last = false;                        // drop the last batch of an epoch if it is short
  std::optional<int64_t> exit_interval;          // as in BatchConfig
  std::optional<double> exit_duration_in_mins;   // as in BatchConfig
  std::optional<double> embedding_lr;            // RecommendConfig::lr
  OptimizerKind optimizer = OptimizerKind::Sgd;  // for the MLPs: sgd, adagrad or adam
  TableOptimizer embedding_optimizer = TableOptimizer::Sgd;
  double ftrl_alpha = 0.05, ftrl_beta = 1, ftrl_l1 = 0, ftrl_l2 = 0;
  double eps = 1e-8;
  std::optional<WeightList> label_weights;  // 1 each
  double weight_decay = 0;                  // on the MLPs' weights
  double embedding_weight_decay = 0;        // on the table rows that a step uses
  double clip_grad = 0;                     // on the MLPs' gradient; 0: no clipping
  std::optional<int64_t> eval_interval;     // absent or 0: only at the end
  std::optional<double> target_auc;
  std::optional<int64_t> early_stop_patience;  // as in EvalConfig
};

struct EmbeddingPlacementConfig {
  TablePlacements placement;
  bool bf16_exchange = false;
  std::optional<double> memory_limit;        // GiB per rank
  std::optional<std::string> table_storage;  // a folder for files of tables; absent: no files
  std::optional<double> table_cache;         // GiB per rank or device; kTableCache with table_storage
  static constexpr double kTableCache = 1;
};

// `trifold preprocess`: converts click logs as text into a folder of columns and dictionaries
struct PreprocessConfig {
  std::vector<std::string> input;    // required: files or folders
  std::string output;                // required
  std::string data_format = "auto";  // auto | tsv | csv | csv-hex
  // The columns of a CSV file with any header. If no option below is given, the header's names decide, or the columns
  // are Criteo's.
  std::optional<LabelRules> label;
  std::optional<ColumnNames> columns;  // all columns of text without a header, in order
  std::optional<ColumnNames> dense, sparse;
  std::optional<BagColumns> bag;
  std::optional<ColumnNames> bag_weights;  // columns of `bag` whose ids have weights
  std::optional<std::string> weight;       // column with the weights of samples
  std::optional<ColumnNames> keep;         // columns whose texts are kept with the samples
  std::optional<ColumnPairs> share_table;  // columns without a table, each with the owner of its table
  Separator separator;
  Quoting quoting = Quoting::Auto;
  // Texts of missing values; an empty field is missing too.
  std::vector<std::string> missing_values = {"NA", "NaN", "nan", "null", "NULL"};
  uint64_t hash_seed = 0;  // seed of the hashes of texts
  DenseTransform dense_transform = DenseTransform::Log1p;
  IdSource ids = IdSource::Dictionary;
  int64_t max_ind_range = 0;  // 0: hashes are used unchanged
  int64_t frequency_threshold = 1;
  std::optional<std::string> dictionaries_of;
  bool grow_dictionaries = false;
  std::optional<int64_t> max_bag;  // number of first ids of a bag that are kept
  Unlabelled unlabelled = Unlabelled::Malformed;
  std::optional<WeightList> split;      // shares of training, validation and test
  std::optional<std::string> split_by;  // column of times
  double drop_negatives = 0;
  uint64_t seed = 1234;
  std::optional<double> max_malformed;  // dictionaries_of's, or 0.01
  double dictionary_memory = 1;         // GiB
  std::optional<int> threads;           // all cores of the host
};

// `trifold recommend`
struct RecommendConfig {
  RecommendConfig();

  ClickDataConfig data;
  DlrmConfig model;
  ClickTrainingConfig training;
  LrConfig lr;                // for the MLPs; the rates of the tables are derived from it
  PrecisionConfig precision;  // bf16 (for the MLPs and the cross network), tf32 and f64 are used
  EmbeddingPlacementConfig placement;
  MeshConfig mesh;  // ranks, threads_per_rank, device and the time-out count
  ZeroConfig zero;  // only zero_stage is used, at most 2
  CheckpointConfig checkpoint;
  LogConfig log;
  uint64_t seed = 1234;

  // Not an option: the names of the options given on the command line. A model option that is not among them and has
  // its default value is read from the checkpoint that the run loads (inherit_model in json.h).
  std::set<std::string> given;
};

// `trifold plan-recommender`: the forecast of `run`, computed without starting ranks. Costs are per rank; the defaults
// roughly describe one socket of a 2023 server with 32 cores.
struct PlanRecommenderConfig {
  RecommendConfig run;
  GoodputConfig goodput;
  double peak_gflops = 2000;      // GFLOP/s of matrix products
  double memory_bandwidth = 150;  // GB/s (1e9 bytes) for reading random rows
  double link_bandwidth = 25;     // GB/s between ranks
  double link_latency = 5;        // microseconds of a message
  int64_t measure_steps = 0;      // steps to train on this host, to compare with the prediction for it
  std::optional<std::string> svg;
  std::optional<std::string> json;
  bool search = false;                       // search placement, ranks and exchange instead of planning `run`
  std::vector<std::string> rehearsal_words;  // not an option: as in PlanConfig
};

// The common part of commands that use a trained recommender. Model and precision come from the checkpoint.
struct TrainedRecommenderConfig {
  std::string load;  // required
  std::string data;  // required: a file or a folder
  // auto | one of click_formats() (clicks/click_files.h)
  std::string data_format = "auto";
  std::optional<std::string> dictionaries_of;  // the folder on which the model was trained
  std::optional<IdPolicy> id_policy;           // the training run's
  bool no_correct_negatives = false;           // as in DlrmConfig; true if either is
  std::optional<double> max_malformed;         // share of malformed lines of raw data; the training data's
  int64_t global_batch_size = 4096;
  EmbeddingPlacementConfig placement;
  MeshConfig mesh;  // ranks, threads_per_rank, device and the time-out count
};

// `trifold score`: the predictions of a trained recommender
struct ScoreConfig {
  TrainedRecommenderConfig run;
  std::string output;                        // required; "-": standard output
  std::optional<ScoreFormat> output_format;  // by the name of the output
  std::optional<ColumnNames> keep;           // columns of the data that are copied to the output
};

// `trifold evaluate` of a recommender
struct EvaluateRecommenderConfig {
  TrainedRecommenderConfig run;
  std::optional<std::string> group_by;  // table whose first id groups samples for GAUC and the metrics at k
  std::optional<NumberList> metric_at_k;
  Unlabelled unlabelled = Unlabelled::Skip;  // Skip, Negative or Malformed
  std::optional<std::string> json;
};

}  // namespace trifold
