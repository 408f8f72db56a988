#include "config/subjects/recommenders/clicks.h"

#include "config/options/bounds.h"

namespace trifold {

namespace {

void add_files(OptionTable& table, PreprocessConfig& config) {
  table.group("Files");
  table
      .add(
          "input", &config.input,
          "Criteo's TSV files, CSV files with a header, Parquet files (.parquet), or NumPy arrays: dlrm's .npz, or "
          "TorchRec's, named by their file of labels (NAME_labels.npy, next to NAME_dense.npy and "
          "NAME_sparse.npy), in training order; for a folder, all such files in it, ordered by name. Text may be "
          "compressed (.gz, .zst, .xz or .bz2).")
      .need()
      .reads("FILE ...");
  table.add("output", &config.output, "Folder to create.").need().names("DIR", FileUse::Filled);
  table
      .add("data-format", &config.data_format,
           "Format of the input. Ids are hexadecimal in tsv and csv-hex, decimal in csv; auto is tsv or csv.")
      .one_of({"auto", "tsv", "csv", "csv-hex"})
      .excludes("label", "which names a column of the header", "leave --data-format out")
      .only_for("tsv|csv-hex");
  table
      .add("max-malformed", &config.max_malformed,
           "Malformed lines or rows are left out up to this fraction of the input; more is an error.")
      .range(0, 1)
      .absent("that of --dictionaries-of, otherwise 0.01");
}

void add_columns(OptionTable& table, PreprocessConfig& config) {
  table.group("Columns");
  table
      .add("label", &config.label,
           "Column of the label, 0 or 1, or a comparison that yields it, such as rating>=4 or income==yes; "
           "several for a model with several labels, of which a sample may lack some but not all; "
           "^= matches the beginning of a text. The next options name the other columns.")
      .takes("COLUMN[>=VALUE],...")
      .absent("columns named label, I1, I2 ..., C1, C2 ..., or Criteo's")
      .needs(When("sparse").or_when("bag"), {}, "name the columns of categories, as in --sparse user,item");
  table.add("columns", &config.columns, "All columns, in order, of a text without a header; with --label.")
      .takes("COLUMN,...")
      .absent("the first line names them")
      .only_with("label", {}, "give --label COLUMN too");
  table.add(
      "unlabelled", &config.unlabelled,
      "Rows without a label: malformed, which counts them for --max-malformed; left out (skip); with the label 0 "
      "(negative); or samples without a label (keep), which score predicts and other commands leave out.");
  table
      .add("dense", &config.dense,
           "Numeric columns, in this order, and parts of columns of dates and times: time@days, time@hour.")
      .takes("COLUMN[@PART],...")
      .absent("none")
      .only_with("label", {}, "give --label COLUMN too");
  table
      .add(
          "sparse", &config.sparse,
          "Categorical columns, one table each; any text, equal texts get the same id. Parts as for --dense.")
      .takes("COLUMN[@PART],...")
      .absent("none")
      .only_with("label", {}, "give --label COLUMN too");
  table
      .add("bag", &config.bag,
           "Columns of any number of categories, one table each after those of --sparse, with the separator "
           "of their values: one character, or space, tab or comma; none for lists of a Parquet file.")
      .takes("COLUMN[:CHARACTER],...")
      .absent("none")
      .only_with("label", {}, "give --label COLUMN too");
  table
      .add(
          "bag-weights", &config.bag_weights,
          "Of --bag, columns whose values have weights: comedy:0.5|drama:2, or maps of a Parquet file; or, after a "
          "colon, the column of the weights. A vector counts that many times.")
      .takes("COLUMN[:COLUMN],...")
      .absent("none")
      .only_with("label", {}, "give --label COLUMN too");
  table
      .add(
          "weight", &config.weight,
          "Column of the weights of samples, 0 or more: a sample counts that many times in loss and metrics.")
      .takes("COLUMN")
      .absent("all count once")
      .only_with("label", {}, "give --label COLUMN too");
  table
      .add(
          "keep", &config.keep,
          "Columns whose texts go with the samples, so that score --keep can write them next to the predictions.")
      .takes("COLUMN,...")
      .absent("none");
  table
      .add("share-table", &config.share_table,
           "Columns that use the table of another column, so that equal texts have one id and one vector, "
           "as in history:item.")
      .takes("COLUMN:COLUMN,...")
      .absent("each has its own")
      .only_with("label", {}, "give --label COLUMN too");
  table
      .add("max-bag", &config.max_bag,
           "Keep only the first N ids of longer bags. "
           "The memory of a training step is sized for the longest bag.")
      .range(1, 1 << 20)
      .absent("all are kept");
  table.add("separator", &config.separator, "Field separator, one character or the word tab; with --label.")
      .takes("CHARACTER")
      .suggest({"tab", ";", "|"})
      .only_with("label", {}, "give --label COLUMN too");
  table
      .add(
          "quoting", &config.quoting,
          "Quotes in a text: around fields, or none, plain characters as in pandas' quoting=3. auto: around fields "
          "between commas; between other separators as the first lines show; with --label.")
      .only_with("label", {}, "give --label COLUMN too");
  table
      .add("missing-values", &config.missing_values,
           "Texts that mean a missing value, besides the empty field; with --label.")
      .takes("TEXT ...")
      .only_with("label", {}, "give --label COLUMN too");
  table.group("Dense numbers");
  table
      .add("dense-transform", &config.dense_transform,
           "Transform of numeric values: log1p ln(max(x,0)+1), log3 ln(x+3), logmin ln(x-minimum+2), none.")
      .excludes({"ids", "keys"},
                "because other data would take the minimum of the training data from dictionaries",
                "give log1p, log3 or none")
      .only_for("logmin");
}

void add_ids(OptionTable& table, PreprocessConfig& config) {
  table.group("Ids");
  table
      .add(
          "ids", &config.ids,
          "How hashes map to ids: dictionary numbers them in order of first appearance, hash takes the "
          "hash modulo --max-ind-range, keys keeps them, so that recommend assigns rows to them as they come.")
      .needs({"max-ind-range", kAboveZero}, {}, "give the rows of every table")
      .only_for("hash");
  table
      .add("max-ind-range", &config.max_ind_range,
           "Reduce hashes modulo this first, which bounds the size of tables; 0: no reduction.")
      .range(0, 4294967296.0)
      .excludes({"ids", "keys"}, "which would give different values the same key",
                "leave it out; recommend --table-rows bounds the tables");
  table.add("hash-seed", &config.hash_seed, "Seed of the hashes of texts; with --label.")
      .only_with("label", {}, "give --label COLUMN too");
  table
      .add("frequency-threshold", &config.frequency_threshold,
           "Values that occur less often than this share id 1.")
      .range(0, kMaxCount)
      .no_effect_with({"ids", "hash"}, "which counts nothing", "leave it out")
      .unless({"frequency-threshold", "0|1"})
      .no_effect_with({"ids", "keys"}, "which counts nothing",
                      "recommend --key-admission counts values while it trains")
      .unless({"frequency-threshold", "0|1"})
      .no_effect_with("dictionaries-of", "whose dictionaries are not changed",
                      "leave it out, or give --grow-dictionaries too")
      .unless(When("grow-dictionaries").or_when("frequency-threshold", "0|1"));
  table
      .add("dictionaries-of", &config.dictionaries_of,
           "Reuse the dictionaries of this folder, so that ids have the same meaning; unknown values get id "
           "1. Without --label the columns are also those of that folder, if options named them.")
      .reads("DIR")
      .absent("made from the input")
      .no_effect_with({"ids", "hash|keys"}, {}, "leave it out");
  table
      .add("grow-dictionaries", &config.grow_dictionaries,
           "Give unknown values that reach --frequency-threshold in the input ids after those of "
           "--dictionaries-of; recommend --finetune continues with such data.")
      .only_with("dictionaries-of");
}

}  // namespace

void add_clicks(OptionTable& table, PreprocessConfig& config) {
  add_files(table, config);
  add_columns(table, config);
  add_ids(table, config);
  table.group("Sampling");
  table
      .add(
          "split", &config.split,
          "Make several data sets in the folders train, valid and, with three numbers, test of the output, with "
          "these shares of the rows, as in 80,10,10. Rows are drawn at random unless --split-by names a column. "
          "Dictionaries are those of train.")
      .takes("N,N[,N]")
      .absent("one data set");
  table
      .add(
          "split-by", &config.split_by,
          "Column of dates, times or numbers: the earliest rows go to train, the latest to the last part, and rows "
          "of the same time to the same part.")
      .takes("COLUMN")
      .absent("random parts")
      .only_with("split");
  table
      .add("drop-negatives", &config.drop_negatives,
           "Fraction of the samples without a click to drop, with --split from train alone.")
      .fraction();
  table.add("seed", &config.seed, "Seed of what is drawn here.");
  table.group("Machine");
  table
      .add("dictionary-memory", &config.dictionary_memory,
           "Memory for dictionaries in GiB; larger ones are built in several passes.")
      .range(0.0001, 1 << 20);
  table.add("threads", &config.threads, "Threads.").range(1, 1 << 16).absent("the cores of the host");
}

void check_clicks(const PreprocessConfig& config, Problems& problems) {
  if (config.split && (config.split->weights.size() < 2 || config.split->weights.size() > 3))
    problems.about("split")
        .wrong("--split {} names {} part{}", config.split->text(), config.split->weights.size(),
               config.split->weights.size() == 1 ? "" : "s")
        .right("give the shares of training and validation, and of test if there is one, as in 80,10,10");
  if (config.ids == IdSource::Hash && config.max_ind_range > 2147483647)
    problems.about("max-ind-range", "ids")
        .wrong("--max-ind-range {} is more rows than a table can have with --ids hash", config.max_ind_range)
        .right("give at most 2147483647");
}

}  // namespace trifold
