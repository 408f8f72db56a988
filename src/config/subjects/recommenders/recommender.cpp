#include "config/subjects/recommenders/recommender.h"

#include "config/options/bounds.h"
#include "config/subjects/checkpoint.h"
#include "config/subjects/log.h"
#include "config/subjects/mesh.h"
#include "config/subjects/precision.h"
#include "config/subjects/training.h"
#include "config/subjects/zero.h"

namespace trifold {

namespace {

constexpr double kMostClicks = 1e15;

}  // namespace

void add_click_data(OptionTable& table, ClickDataConfig& data) {
  table.group("Data");
  table.add("train-data", &data.train_data, "File or folder of training samples, or the word synthetic.")
      .reads("PATH")
      .of_host()
      .of_execution()
      .no_effect_with({"data-format", "synthetic"});
  table.add("valid-data", &data.valid_data, "File or folder of evaluation samples.")
      .reads("PATH")
      .absent("the last --valid-samples of the training data")
      .of_all_hosts()
      .of_execution()
      .excludes({"valid-samples", AtLeast{1}}, "which also says what to evaluate on", "give one of them");
  table
      .add("data-format", &data.data_format,
           "Format of both; auto infers it from the name and the first line. Ids are hexadecimal in tsv and "
           "csv-hex, decimal in csv.")
      .one_of({"auto", "synthetic", "tsv", "csv", "csv-hex", "mlperf-bin", "hugectr-raw",
               "hugectr-raw-counts", "split-binary", "clicks"});
  table
      .add(
          "dictionaries-of", &data.dictionaries_of,
          "Preprocess the samples first, text, Parquet or arrays, with the columns, the transform and the ids of this "
          "folder of preprocess; unknown values get id 1.")
      .reads("DIR")
      .absent("for --valid-data, --train-data if it is such a folder")
      .of_all_hosts();
  table
      .add(
          "max-malformed", &data.max_malformed,
          "Malformed lines or rows of raw data are left out up to this fraction of a file; more is an error.")
      .range(0, 1)
      .absent("that of --dictionaries-of, otherwise 0.01");
  table
      .add("table-rows", &data.table_rows,
           "Rows of each embedding table, or one number for all. Must match data that record their rows; the "
           "word data takes them from there. Data of preprocess --ids keys need it: "
           "training assigns rows to values as they come.")
      .takes("N-N-...")
      .absent("from the data; 1000 for synthetic clicks");
  table
      .add("table-max-ids", &data.table_max_ids,
           "Maximum number of ids per sample for each table, or one number for all.")
      .takes("N-N-...")
      .absent("1");
  table
      .add("dense-features", &data.dense_features,
           "Numeric features per sample; 0: none, and no bottom MLP. Must match data that record it.")
      .range(0, 1 << 20)
      .absent("from the data, otherwise 13");
  table
      .add("dense-transform", &data.dense_transform,
           "Transform of numeric features; must match data that are already transformed.")
      .one_of({"none", "log1p", "log3"})
      .absent("log1p; none for hugectr-raw, whose numbers are not counts");
  table.add("id-policy", &data.id_policy, "Treatment of ids that are out of range for their table.")
      .absent("error");
  table
      .add(
          "unlabelled", &data.unlabelled,
          "Rows of text, Parquet files and arrays that have no label: malformed, left out (skip), or with the label 0 "
          "(negative). Samples without a label, which preprocess --unlabelled keep makes, are left out.")
      .one_of({"malformed", "skip", "negative"});
  table.add("synthetic-samples", &data.synthetic_samples, "Number of synthetic samples.")
      .range(1, kMostClicks)
      .only_with({"train-data", "synthetic"}, {}, "leave it out");
  table
      .add("synthetic-zipf", &data.synthetic_zipf,
           "Exponent of the Zipf distribution of synthetic ids; 0: uniform.")
      .range(0, 10)
      .only_with({"train-data", "synthetic"}, {}, "leave it out")
      .unless({"measure-steps", AtLeast{1}});
  table.add("synthetic-missing", &data.synthetic_missing, "Fraction of synthetic bags that are empty.")
      .fraction()
      .only_with({"train-data", "synthetic"}, {}, "leave it out")
      .unless({"measure-steps", AtLeast{1}});
  table
      .add("synthetic-constant", &data.synthetic_constant,
           "Make all synthetic samples alike, so that no AUC exceeds 0.5.")
      .only_with({"train-data", "synthetic"}, {}, "leave it out")
      .unless({"measure-steps", AtLeast{1}});
  table
      .add("synthetic-labels", &data.synthetic_labels,
           "Labels of a synthetic sample, called label1, label2 ..., with the same probabilities.")
      .range(1, 256)
      .only_with({"train-data", "synthetic"}, {}, "leave it out");
  table
      .add("valid-samples", &data.valid_samples,
           "Hold out this many samples at the end of the training data for evaluation.")
      .range(0, kMostClicks);
}

void add_recommender(OptionTable& table, DlrmConfig& model) {
  table.group("Model");
  table.add("embedding-dim", &model.embedding_dim, "Width of an embedding vector.").range(1, 1 << 16);
  table
      .add("embedding-init-range", &model.embedding_init_range,
           "Initial values of a table are drawn uniformly from plus or minus this; 0: "
           "from plus or minus one over the square root of its rows. With a number other than 0, "
           "rows added to the table later start like its first ones.")
      .at_least(0);
  table
      .add(
          "init-weights", &model.init_weights,
          "Start a new run from the weights in this safetensors file, under the names that convert writes or "
          "TorchRec's, instead of random weights.")
      .reads("FILE")
      .absent("initial values follow from --seed");
  table
      .add(
          "key-admission", &model.key_admission,
          "Data of preprocess --ids keys: a value gets a row of its own when it has occurred N times in the run, "
          "also if it lost a row before; until then it shares row 1 with all others that have none. Counts take 32 "
          "bytes a row, 2 MiB or more a table; one may be too high, rarely, and none is too low.")
      .range(1, 65535);
  table.add("key-eviction", &model.key_eviction,
            "Data of preprocess --ids keys: the value that loses its row to a new one if no row is free: "
            "the one last seen longest ago (oldest), the one seen least often (rarest), or none.");
  table.add("bottom-mlp", &model.bottom_mlp, "Widths of the bottom MLP; the last is --embedding-dim.")
      .takes("N-N-...");
  table.add("top-mlp", &model.top_mlp, "Widths of the top MLP; the last is 1.").takes("N-N-...");
  table.add(
      "interaction", &model.interaction,
      "Feature interaction: pairwise dot products, concatenation, a cross network, or concatenation with "
      "the sum of the pairwise products added to the logit (fm: DeepFM).");
  table
      .add("interaction-self", &model.interaction_self,
           "dot: include the product of each vector with itself.")
      .only_with({"interaction", "dot"});
  table.add("wide", &model.wide,
            "Add a first-order term to the logit: a weight for each id, stored with its vector, and for each "
            "dense feature (the wide part of Wide & Deep and DeepFM).");
  table.add("cross-layers", &model.cross_layers, "Layers of the cross network.")
      .range(1, 100)
      .only_with({"interaction", "cross"});
  table.add("cross-rank", &model.cross_rank, "Rank of the matrices of the cross network.")
      .range(1, 1 << 20)
      .only_with({"interaction", "cross"});
  table.add("pooling", &model.pooling, "Pooling of a bag of ids: the sum or the mean of its vectors.");
  table
      .add(
          "attention", &model.attention,
          "Pool these bags by attention to the vector of another table instead (DIN), as in history:item: each vector "
          "of the bag is weighted by an MLP that sees it next to that of the item.")
      .takes("BAG:TABLE,...")
      .absent("none");
  table.add("attention-mlp", &model.attention_mlp, "Widths of that MLP; the last is 1.")
      .takes("N-N-...")
      .only_with("attention", {}, "name the bags that are pooled by attention, or leave it out");
  table
      .add(
          "tower-mlp", &model.tower_mlp,
          "Several labels: widths of each label's tower, after the hidden layers of --top-mlp; the last is 1.")
      .takes("N-N-...");
  table.add(
      "multi-task", &model.multi_task,
      "Several labels: below their towers they share the hidden layers of --top-mlp (shared-bottom), or "
      "each mixes experts of such layers by a gate of its own (mmoe).");
  table.add("mmoe-experts", &model.mmoe_experts, "mmoe: number of experts.")
      .range(1, 256)
      .only_with({"multi-task", "mmoe"});
  table.add("dropout", &model.dropout, "Dropout of the outputs of the MLPs' hidden layers.").fraction();
  table
      .add("batch-norm", &model.batch_norm,
           "Batch normalisation of the MLPs' hidden layers, over the samples of all ranks.")
      .excludes({"global-batch-size", "1"}, "because it normalises over the samples of a step",
                "give 2 or more, or leave it out");
  table.add("loss", &model.loss,
            "Loss: binary cross entropy (bce), or squared error of the probability (mse).");
  table.add(
      "no-correct-negatives", &model.no_correct_negatives,
      "Data of preprocess --drop-negatives X: leave predictions and evaluations at the odds of these data. By "
      "default ln(1 - X) is added to the log odds, which are then those of all samples.");
}

void add_click_training(OptionTable& table, RecommendConfig& config) {
  ClickTrainingConfig& training = config.training;
  table.group("Training");
  table.add("global-batch-size", &training.global_batch_size, "Samples per step over all ranks.")
      .range(1, 1 << 30);
  table.add("train-iters", &training.train_iters, "Steps to train.")
      .range(1, kMostClicks)
      .absent("--train-epochs counts")
      .excludes("train-epochs", {}, "give one of them");
  table.add("train-epochs", &training.train_epochs, "Passes over the training data.")
      .range(1, kMostClicks)
      .absent("1, if --train-iters is not given");
  table.add(
      "sample-order", &training.sample_order,
      "Order of the training samples: shuffled anew in each pass, or as they are stored, day after day.");
  table.add(
      "drop-last", &training.drop_last,
      "Leave out the last batch of each pass if it is incomplete. By default its few samples make a step like "
      "those of the others.");
  add_exit(table, training.exit_interval, training.exit_duration_in_mins);
  add_lr(table, config.lr);
  table.change("lr").optional();
  table.change("lr-decay-iters").range(0, kMaxCount).absent("the steps of the run; no decay for parabola");
  table
      .add("embedding-lr", &training.embedding_lr,
           "Learning rate of the tables; it follows the same schedule as --lr.")
      .positive()
      .absent("--lr");
  table.group("Optimizer");
  table.add("optimizer", &training.optimizer, "Update rule of the MLPs.").one_of({"sgd", "adagrad", "adam"});
  table.add("embedding-optimizer", &training.embedding_optimizer,
            "Update rule of the embedding rows that a step uses.");
  table.add("ftrl-alpha", &training.ftrl_alpha, "ftrl: learning rate of the tables, the same in all steps.")
      .positive()
      .only_with({"embedding-optimizer", "ftrl"});
  table.add("ftrl-beta", &training.ftrl_beta, "ftrl: added to the root of a number's squared gradients.")
      .at_least(0)
      .only_with({"embedding-optimizer", "ftrl"});
  table.add("ftrl-l1", &training.ftrl_l1, "ftrl: L1 penalty; weights that it outweighs are exactly 0.")
      .at_least(0)
      .only_with({"embedding-optimizer", "ftrl"});
  table.add("ftrl-l2", &training.ftrl_l2, "ftrl: L2 penalty.")
      .at_least(0)
      .only_with({"embedding-optimizer", "ftrl"});
  table.add("eps", &training.eps, "adagrad, adam: added to the root in the denominator.")
      .positive()
      .only_with(
          When("optimizer", "adagrad|adam").or_when("embedding-optimizer", "adagrad|rowwise-adagrad|adam"));
  table
      .add("weight-decay", &training.weight_decay,
           "L2 penalty of the weights, not the biases, of the MLPs and the cross network, "
           "and with --wide of those of the dense features: this times the weight is added to its gradient "
           "or, for adam, to its step (AdamW). Embedding rows have --embedding-weight-decay.")
      .at_least(0);
  table
      .add("embedding-weight-decay", &training.embedding_weight_decay,
           "Before a step updates an embedding row that it uses, subtract this times the learning rate times "
           "the row (decoupled L2 penalty); other rows stay as they are.")
      .at_least(0)
      .no_effect_with({"embedding-optimizer", "ftrl"}, {}, "its L2 penalty is --ftrl-l2");
  table
      .add(
          "label-weights", &training.label_weights,
          "Several labels: the weight of each label's loss in the training loss, in the order of the labels.")
      .takes("X,X,...")
      .absent("1 each");
  table
      .add("clip-grad", &training.clip_grad,
           "Clip the gradients of the MLPs, the cross network and, with --wide, the weights of the dense "
           "features to this global norm; 0: no clipping. Embedding rows are neither counted nor clipped.")
      .at_least(0);
  table.add("bf16", &config.precision.bf16,
            "Weights and activations of the MLPs and the cross network in bf16; "
            "f32 master weights. Tables stay in f32.");
  add_tf32(table, config.precision);
  table.add("f64", &config.precision.f64, "Compute everything in double precision, for numerical checks.")
      .excludes("bf16", {}, "give one of them, or none for f32");
  table.add("seed", &config.seed, "Seed of initial weights, sample order and synthetic clicks.");
  table.group("Evaluation");
  table
      .add("eval-interval", &training.eval_interval,
           "Evaluate every N steps, and at the end; 0: only at the end.")
      .range(0, kMostClicks)
      .absent("only at the end, if there are evaluation samples")
      .of_execution()
      .needs(When("valid-data").or_when("valid-samples", AtLeast{1}), "whose samples are evaluated",
             "give one of them, or --eval-interval 0")
      .unless({"eval-interval", "0"});
  table.add("target-auc", &training.target_auc, "Stop when an evaluation reaches this AUC.")
      .range(0.5, 1)
      .absent("no target")
      .of_execution()
      .needs(When("valid-data").or_when("valid-samples", AtLeast{1}), "whose samples are evaluated",
             "give one of them");
  add_early_stop(table, training.early_stop_patience);
}

void add_tables(OptionTable& table, EmbeddingPlacementConfig& placement) {
  table
      .add("placement", &placement.placement,
           "Placement of tables on ranks: table (whole), row, column, replicated, a list of these with one "
           "for each table, or auto.")
      .takes("KIND,...")
      .suggest({"auto", "table", "row", "column", "replicated"})
      .of_execution();
  table.add("bf16-exchange", &placement.bf16_exchange, "Exchange embedding vectors between ranks in bf16.")
      .excludes("f64");
  table
      .add("memory-limit", &placement.memory_limit,
           "Memory of a rank, or of its device, in GiB; a run that needs more is rejected.")
      .positive()
      .absent("no limit")
      .of_execution();
  table
      .add(
          "table-storage", &placement.table_storage,
          "Keep tables that are larger than memory, with their optimizer state, in files in this folder, on a "
          "fast disk. The most used rows are in memory, or in that of the device.")
      .names("DIR", FileUse::Scratch)
      .absent("tables are in memory")
      .of_all_hosts()
      .of_execution();
  table
      .add("table-cache", &placement.table_cache,
           "Memory of a rank, or of its device, for rows of its tables and their state, in GiB, with "
           "--table-storage; without it, on a device, whole tables are in the memory of the host.")
      .positive()
      .absent("1 with --table-storage")
      .of_execution()
      .only_with(When("table-storage").or_when("device", "cuda"), {},
                 "name a folder for the tables, or leave it out");
}

void add_table_ranks(OptionTable& table, RecommendConfig& config) {
  table.group("Ranks and tables");
  add_ranks(table, config.mesh);
  add_host(table, config.mesh);
  add_zero_stage(table, config.zero).range(0, 2).help =
      "What ranks shard of the MLPs and the cross network: 0 nothing, "
      "1 the optimizer state, 2 also gradients.";
  add_tables(table, config.placement);
}

void add_click_files(OptionTable& table, RecommendConfig& config) {
  add_checkpoint(table, config.checkpoint);
  table.change("finetune").help =
      "Start another run, on other data, from the weights and optimizer state of --load. "
      "Its tables may have more rows, after preprocess --grow-dictionaries: "
      "rows of known values are kept, the others are new.";
  add_log(table, config.log);
  table.change("log-json").help = "Append one JSON object per report to this file.";
}

namespace {

// Whether the widths of a bottom MLP can be checked before the data are opened. Data without dense features have no
// bottom MLP, and then the default must not disagree with --embedding-dim: recommender_setup checks the other data.
bool has_bottom(const DlrmConfig& model, const ClickDataConfig& data) {
  if (data.dense_features) return *data.dense_features > 0;
  return data.train_data == "synthetic" || model.bottom_mlp.numbers() != DlrmConfig().bottom_mlp.numbers();
}

void check_widths(const DlrmConfig& model, bool has_dense, Problems& problems) {
  if (has_dense && model.bottom_mlp.numbers().back() != model.embedding_dim)
    problems.about("bottom-mlp", "embedding-dim")
        .wrong(
            "--bottom-mlp {} does not end with --embedding-dim {}, "
            "so its vector cannot interact with those of the tables",
            model.bottom_mlp.text(), model.embedding_dim)
        .right("end it with that number");
  if (model.top_mlp.numbers().back() != 1)
    problems.about("top-mlp")
        .wrong("--top-mlp {} does not end with 1, the logit of a click", model.top_mlp.text())
        .right("end it with 1");
  if (model.tower_mlp.numbers().back() != 1)
    problems.about("tower-mlp")
        .wrong("--tower-mlp {} does not end with 1, the logit of a label", model.tower_mlp.text())
        .right("end it with 1");
  if (model.attention_mlp.numbers().back() != 1)
    problems.about("attention-mlp")
        .wrong("--attention-mlp {} does not end with 1, the weight of a vector", model.attention_mlp.text())
        .right("end it with 1");
}

}  // namespace

void check_click_data(const ClickDataConfig& data, Problems& problems) {
  if (!data.table_max_ids || !data.table_rows || !data.table_rows->list) return;
  const size_t most = data.table_max_ids->numbers().size();
  const size_t rows = data.table_rows->list->numbers().size();
  if (most != 1 && rows != 1 && most != rows)
    problems.about("table-max-ids", "table-rows")
        .wrong("--table-max-ids has {} values, but --table-rows has {}", most, rows)
        .right("give one for all, or one for each");
}

void check_recommender(const RecommendConfig& config, Problems& problems) {
  check_widths(config.model, has_bottom(config.model, config.data), problems);
  const ClickTrainingConfig& training = config.training;
  // Without --embedding-lr the tables use the rate of --lr.
  if (training.embedding_optimizer == TableOptimizer::Ftrl &&
      training.embedding_lr.value_or(config.lr.lr) != config.lr.lr)
    problems.about("embedding-lr", "embedding-optimizer")
        .wrong("--embedding-lr {} has no effect with --embedding-optimizer ftrl", *training.embedding_lr)
        .right("its learning rate is --ftrl-alpha");
}

}  // namespace trifold
