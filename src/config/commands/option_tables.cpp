#include "config/commands/option_tables.h"

#include <algorithm>

#include "config/commands/search_axes.h"
#include "config/subjects/experts.h"
#include "config/subjects/model.h"
#include "config/subjects/model_family.h"
#include "config/subjects/option_groups.h"
#include "config/subjects/precision.h"

namespace trifold {

BenchConfig::BenchConfig() {
  run.model.num_layers = 12;
  run.model.hidden_size = 768;
  run.model.num_attention_heads = 12;
  run.model.seq_length = 256;
  run.model.vocab_size = 50257;
  run.batch.micro_batch_size = 4;
  run.lr.lr = 1e-4;
  run.optimizer.clip_grad = 0;  // nothing is learned, and asynchronous schedules can be measured too
}

PlanConfig::PlanConfig() {
  run.batch.train_iters = 1;
  run.lr.lr = 1e-4;
}

OptionTable options_of(PretrainConfig& config) {
  OptionTable table;
  add_model(table, config.model);
  add_data(table, config.data);
  add_documents(table, config.data);
  add_pairs(table, config.data);
  add_batch(table, config.batch);
  add_length(table, config.batch, config.seed);
  add_lr(table, config.lr);
  add_optimizer(table, config.optimizer);
  add_precision(table, config.precision);
  add_mesh(table, config.mesh);
  add_device_choices(table, config.mesh);
  add_pipeline(table, config.pipeline, config.mesh);
  add_zero(table, config.zero);
  add_recompute(table, config.mesh);
  add_memory_limit(table, config.mesh);
  add_checkpoint(table, config.checkpoint);
  add_upcycling(table, config.checkpoint);
  add_eval(table, config.eval);
  add_log(table, config.log);
  table.group("Layout");
  table
      .add("auto-layout", &config.auto_layout,
           "Before the run, choose everything that 'trifold plan --search "
           "--hardware' chooses for this device, from "
           "tensor, context, pipeline and expert ranks to recomputation; overrides their options.")
      .reads("NAME|FILE.json")
      .suggest({"a100-40gb", "a100-80gb", "h100", "h200", "b200", "cpu"})
      .absent("layout from the options")
      .of_execution();
  table.change("micro-batch-size").need("auto-layout");
  if (config.auto_layout) table.change("micro-batch-size").optional().range(0, kMaxSize);
  add_family_rules(table);
  return table;
}

OptionTable options_of(ModelConfig& config) {
  OptionTable table;
  add_model(table, config);
  table.add("bert-head", &config.bert_head, "Output head of a BERT.");
  table.add("class-names", &config.class_names, "Names of the classes.");
  add_family_rules(table);
  return table;
}

namespace {

// For commands that rewrite a checkpoint.
void add_dtype(OptionTable& table, std::optional<DType>& dtype) {
  table.add("dtype", &dtype, "Data type of all tensors, rounded to nearest.").absent("as they are");
}
void add_max_memory(OptionTable& table, double& mebibytes) {
  table.add("max-memory", &mebibytes, "Memory to use in MiB, besides the file cache.").range(8, 1 << 30);
}

// For commands that read a checkpoint, which may name its tokenizer.
void add_tokenizer_of_model(OptionTable& table, std::optional<TokenizerType>& type,
                            std::optional<std::string>& model) {
  table.group("Tokenizer");
  add_tokenizer_type(table, &type).absent("as the model was trained");
  add_tokenizer_model(table, &model).absent("as the model was trained");
}

}  // namespace

OptionTable options_of(FinetuneConfig& config) {
  OptionTable table;
  PretrainConfig& run = config.run;
  add_task(table, config);
  add_tokenizer_of_model(table, run.data.tokenizer_type, run.data.tokenizer_model);
  add_batch(table, run.batch);
  add_length(table, run.batch, run.seed);
  add_lr(table, run.lr);
  add_optimizer(table, run.optimizer);
  add_precision(table, run.precision);
  add_mesh(table, run.mesh);
  add_device_choices(table, run.mesh);
  add_pipeline(table, run.pipeline, run.mesh);
  add_zero(table, run.zero);
  add_recompute(table, run.mesh);
  add_memory_limit(table, run.mesh);
  add_checkpoint(table, run.checkpoint);
  table.group("Evaluation");
  table.add("eval-interval", &run.eval.eval_interval, "Evaluate every N steps, and at the end.")
      .range(1, kMaxCount)
      .absent("at the end");
  add_early_stop(table, run.eval.early_stop_patience);
  add_log(table, run.log);
  // Without training data there are neither iterations nor a learning rate.
  table.change("train-iters")
      .optional()
      .range(0, kMaxCount)
      .absent("none, but --train-data needs it or --train-epochs");
  table.change("lr").optional().at_least(0).absent("none, but --train-data needs it");
  return table;
}

OptionTable options_of(GenerateConfig& config) {
  OptionTable table;
  table.group("Text");
  table.add("load", &config.load, "Folder of the checkpoint.").need().names("DIR", FileUse::Loaded);
  table.add("prompt", &config.prompt, "Text to continue; if empty, the model starts from scratch.");
  table.add("max-new-tokens", &config.max_new_tokens, "Number of tokens to generate.").range(1, kMaxSize);
  table.add("num-samples", &config.num_samples, "Number of texts to generate.").range(1, kMaxSize);
  add_tokenizer_of_model(table, config.tokenizer_type, config.tokenizer_model);
  add_end_token(table, &config.eod_token).absent("as the model was trained");
  table.group("Sampling");
  table.add("temperature", &config.temperature, "Sampling temperature; 0 always takes the likeliest token.")
      .at_least(0);
  table.add("top-k", &config.top_k, "Sample from this many of the likeliest tokens; 0: from all.")
      .range(0, kMaxSize);
  table.add("top-p", &config.top_p, "Sample from the likeliest tokens that together reach this probability.")
      .bounds = {0, 1, true, false};
  add_seed(table, config.seed, "Seed of the sampling.");
  table.group("Mesh of ranks");
  table.add("threads-per-rank", &config.threads_per_rank, "Compute threads.")
      .range(1, 1 << 16)
      .absent("the cores of the host");
  return table;
}

OptionTable options_of(EvaluateConfig& config) {
  OptionTable table;
  table.group("Checkpoint");
  table.add("load", &config.load, "Folder of the checkpoint; it holds the model.")
      .need()
      .names("DIR", FileUse::Loaded);
  add_data(table, config.data);
  for (const char* name : {"tokenizer-type", "tokenizer-model"})
    table.change(name).absent("as the model was trained");
  add_documents(table, config.data);
  add_pairs(table, config.data);
  table.add("part", &config.part, "Part of the split to evaluate.");
  table.group("Evaluation");
  table.add("eval-iters", &config.eval_iters, "Batches to evaluate, at most one pass over the part.")
      .range(1, kMaxCount)
      .absent("one pass over the part");
  table.add("micro-batch-size", &config.micro_batch_size, "Sequences per micro-batch.").range(1, kMaxSize);
  table
      .add("seq-length", &config.seq_length,
           "Tokens of a sequence; more than in training only with rotary positions or none.")
      .range(1, kMaxSize)
      .absent("as the model was trained");
  add_mesh(table, config.mesh);
  table.group("Logging");
  table
      .add("loss-by-position", &config.loss_by_position,
           "Write the mean loss at each position of the sequences to this file, as comma-separated values.")
      .writes("FILE.csv", {{"position,tokens,loss\n", ""}})
      .absent("none")
      .of_host();
  table.add("log-json", &config.log_json, "Append the result to this file.")
      .names("FILE", FileUse::Appended)
      .absent("none")
      .of_host();
  return table;
}

OptionTable options_of(InspectConfig& config) {
  OptionTable table;
  table.group("Checks");
  table.add("verify", &config.verify, "Read every file and verify its checksums.");
  table.add("diff", &config.diff, "Another checkpoint to compare with.")
      .names("DIR", FileUse::Loaded)
      .absent("none");
  return table;
}

OptionTable options_of(ReshardConfig& config) {
  OptionTable table;
  table.group("Checkpoint");
  table.add("load", &config.load, "Folder of the checkpoint.").need().names("DIR", FileUse::Loaded);
  table.add("save", &config.save, "Folder for the new checkpoint.").need().names("DIR", FileUse::Filled);
  table
      .add("files", &config.files,
           "Split the checkpoint into this many files of equal size instead of sharding it for a mesh.")
      .range(1, kMaxRanks)
      .absent("sharded for the mesh below");
  add_dtype(table, config.dtype);
  table.add("no-save-optim", &config.no_save_optim, "Omit the optimizer state.");
  add_max_memory(table, config.max_memory);
  add_mesh(table, config.mesh);
  add_pipeline(table, config.pipeline, config.mesh);
  add_zero(table, config.zero);
  return table;
}

OptionTable options_of(ConvertConfig& config) {
  OptionTable table;
  table.group("Conversion");
  table
      .add("load", &config.load,
           "Folder of a checkpoint, or of a Hugging Face model: config.json and safetensors files.")
      .need()
      .names("DIR", FileUse::Loaded);
  table
      .add("save", &config.save,
           "Folder for the converted model; for a recommender a file that ends in .onnx or .safetensors.")
      .need()
      .names("DIR", FileUse::Filled);
  add_dtype(table, config.dtype);
  table
      .add("max-file-size", &config.max_file_size,
           "Maximum size of a safetensors file in GB (1e9 bytes); "
           "a larger model is split into several, with an index.")
      .positive();
  table
      .add("seq-length", &config.seq_length,
           "Sequence length to store in the checkpoint; for a Hugging Face model.")
      .range(1, kMaxSize)
      .absent("the model's number of positions");
  table.add(
      "names", &config.names,
      "Recommender, .safetensors: the names of its weights, those of its checkpoint or of TorchRec's DLRM.");
  table
      .add("changed-since", &config.changed_since,
           "Recommender, .safetensors: an older checkpoint of the model; of each table, "
           "only the rows that differ from it are written.")
      .names("DIR", FileUse::Loaded)
      .absent("all rows are written");
  add_max_memory(table, config.max_memory);
  return table;
}

OptionTable options_of(BenchConfig& config) {
  OptionTable table;
  table.group("Benchmark");
  table.add("what", &config.what, "What to measure, separated by commas.").need();
  table.add("warmup-iters", &config.warmup_iters, "Repetitions before measuring.").range(0, kMaxCount);
  table.add("iters", &config.iters, "Repetitions measured.").range(1, kMaxCount);
  table.add("json", &config.json, "Write the results to this file.")
      .writes("FILE", {json_mark("bench")})
      .absent("none")
      .of_host();
  add_model(table, config.run.model);
  add_batch(table, config.run.batch);
  table.group("Random numbers");
  add_seed(table, config.run.seed, "Seed of initial weights and tokens.");
  add_precision(table, config.run.precision);
  add_mesh(table, config.run.mesh);
  add_device_choices(table, config.run.mesh);
  add_pipeline(table, config.run.pipeline, config.run.mesh);
  add_zero(table, config.run.zero);
  add_recompute(table, config.run.mesh);
  add_family_rules(table);
  return table;
}

OptionTable options_of(PlanConfig& config) {
  OptionTable table = options_of(config.run);
  table.forget_outputs();
  for (const char* name : {"data-path", "train-iters", "lr"}) table.change(name).optional();
  table.change("data-path").absent("none");
  Option& micro_batch = table.change("micro-batch-size").need(config.search ? "" : "search");
  const std::vector<SearchAxis> axes = axes_searched(config);
  if (config.search && std::count(axes.begin(), axes.end(), SearchAxis::MicroBatch) > 0)
    micro_batch.optional().range(0, kMaxSize);
  table.change("vocab-size").absent("the tokenizer's, where --data-path is given");
  table.change("memory-limit").absent("none");
  table.group("Plan");
  table
      .add("svg", &config.svg,
           "Draw the step to this file: one row per rank, time to the right; "
           "with --search the best three layouts.")
      .writes("FILE.svg", {svg_mark("plan")})
      .written_as(".svg")
      .absent("none");
  table
      .add(
          "schedule-csv", &config.schedule_csv,
          "Write every rank's actions, including communication, to this file; an existing one needs --overwrite.")
      .writes("FILE.csv", {})
      .absent("none");
  table.add("format", &config.format,
            "Format of --schedule-csv: torch has computation only, for PyTorch's _load_csv(FILE); "
            "torch-comms adds communication (format=\"compute_comms\" there).");
  table.add("json", &config.json, "Write the figures to this file.")
      .writes("FILE", {json_mark("plan")})
      .absent("none");
  table.group("Costs of a rank");
  table.add("peak-gflops", &config.peak_gflops, "GFLOP/s of matrix products.").positive();
  table.add("tensor-link-bandwidth", &config.tensor_link_bandwidth, "GB/s (1e9 bytes) between tensor ranks.")
      .positive();
  table
      .add("link-bandwidth", &config.link_bandwidth,
           "GB/s (1e9 bytes) between pipeline stages and between data-parallel ranks.")
      .positive();
  table.add("link-latency", &config.link_latency, "Latency of a message in microseconds.").at_least(0);
  table
      .add("moe-load-imbalance", &config.moe_load_imbalance,
           "Assume that the busiest of the ranks that share experts gets "
           "this many times the mean number of rows; needs --ep.")
      .range(1, kMaxRanks);
  table
      .add("offload-bandwidth", &config.offload_bandwidth,
           "GB/s (1e9 bytes) of a rank to and from the files of --cpu-offloading-folder.")
      .positive();
  table
      .add("costs", &config.costs,
           "Use times measured by 'bench --what blocks --json FILE' instead of the four rates above.")
      .reads("FILE")
      .absent("none");
  table
      .add("hardware", &config.hardware,
           "Device to forecast for: a100-40gb, a100-80gb, h100, h200, b200, cpu, or a file that describes "
           "one. Its figures determine the time of every operation and replace the rates above.")
      .reads("NAME|FILE.json")
      .suggest({"a100-40gb", "a100-80gb", "h100", "h200", "b200", "cpu"})
      .absent("none: the rates above");
  table
      .add("hardware-set", &config.hardware_set,
           "Override figures of the device, such as adapter-gbytes=12.5 (docs/planning.md lists them).")
      .takes("KEY=VALUE ...");
  table
      .add("assume", &config.assume,
           "Forecast the steps and memory of another program, given how it differs from Trifold, such as "
           "attention=unfused or activations=eager (docs/planning.md lists the keys).")
      .takes("KEY=VALUE ...");
  table.group("Search");
  table.add("search", &config.search,
            "Find the fastest layouts that fit --memory-limit and the memory of --hardware instead of "
            "planning one; overrides the options of the axes that --search-over lists.");
  table
      .add(
          "search-over", &config.search_over,
          "Comma-separated list of the axes that --search chooses; everything else is taken from its options.")
      .absent("all of them");
  table
      .add("search-schedules", &config.search_schedules,
           "Comma-separated list of schedules that --search tries.")
      .one_of({"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe-v", "auto"})
      .absent("1f1b, interleaved, zb-h1, zb-h2, zb-v; dualpipe-v with --overlap-moe-expert-parallel-comm");
  return table;
}

OptionTable options_of(PlanLinesConfig& config) {
  OptionTable table;
  table.group("Plans");
  table
      .add("lines", &config.lines,
           "File with the options of one plan per line; blank lines and lines that begin with # are skipped.")
      .need()
      .reads("FILE");
  table.add("closed-form", &config.closed_form,
            "Print only closed-form step times, without memory and simulation; every line needs --hardware.");
  return table;
}

OptionTable options_of(TokenizeConfig& config) {
  OptionTable table;
  table.group("Files");
  table.add("input", &config.input, "Text file, or JSON lines if its name ends in .json or .jsonl.")
      .need()
      .reads("FILE");
  table
      .add("output-prefix", &config.output_prefix,
           "Write PREFIX_KEY_document.bin and .idx; for a plain text file, KEY is text.")
      .need()
      .names("PREFIX", FileUse::TokenPairs);
  table.add("json-keys", &config.json_keys, "Fields of each JSON line that hold text.")
      .need()
      .takes("KEY ...");
  add_bad_records(table, &config.on_bad_record, &config.max_bad_records);
  table.group("Tokenizer");
  add_tokenizer_type(table, &config.tokenizer_type);
  add_tokenizer_model(table, &config.tokenizer_model);
  add_end_token(table, &config.eod_token);
  table.add("append-eod", &config.append_eod, "End every document with an end-of-document token.");
  return table;
}

}  // namespace trifold
