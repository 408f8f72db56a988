#include "config/commands/option_tables.h"

#include <algorithm>

#include "config/commands/search_axes.h"
#include "config/options/bounds.h"
#include "config/subjects/checkpoint.h"
#include "config/subjects/experts.h"
#include "config/subjects/log.h"
#include "config/subjects/memory.h"
#include "config/subjects/mesh.h"
#include "config/subjects/model.h"
#include "config/subjects/model_family.h"
#include "config/subjects/planning/goodput.h"
#include "config/subjects/planning/plan.h"
#include "config/subjects/precision.h"
#include "config/subjects/scaling/ramps.h"
#include "config/subjects/schedule.h"
#include "config/subjects/text.h"
#include "config/subjects/training.h"
#include "config/subjects/tuning/adapters.h"
#include "config/subjects/tuning/tasks.h"
#include "config/subjects/zero.h"

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
  add_adapters(table, config.model.adapters);
  add_data(table, config.data);
  add_other_data(table, config.data);
  add_data_schedule(table, config.data);
  add_documents(table, config.data);
  add_pairs(table, config.data);
  add_batch(table, config.batch);
  add_batch_ramp(table, config.batch);
  add_length(table, config.batch, config.seed);
  add_lr(table, config.lr);
  add_lengths_in_samples(table, config.batch, config.lr);
  add_optimizer(table, config.optimizer);
  add_weight_decay_ramp(table, config.optimizer);
  add_precision(table, config.precision);
  add_mesh(table, config.mesh);
  add_device_choices(table, config.mesh);
  add_pipeline(table, config.pipeline, config.mesh);
  add_zero(table, config.zero);
  add_recompute(table, config.mesh);
  add_memory_limit(table, config.mesh);
  add_checkpoint(table, config.checkpoint);
  add_optimizer_state(table, config.checkpoint);
  add_model_folders(table, config.checkpoint);
  add_upcycling(table, config.checkpoint);
  add_eval(table, config.eval);
  add_sample_prompt(table, config.eval);
  add_log(table, config.log);
  add_model_numbers(table, config.log);
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
  table.change("arrays").also("data");  // in evaluate, --data names the clicks of a recommender
  table.change("micro-batch-size").need("auto-layout");
  if (config.auto_layout) table.change("micro-batch-size").optional().range(0, kMaxSize);
  add_family_rules(table);
  return table;
}

OptionTable options_of(ModelConfig& config) {
  OptionTable table;
  add_model(table, config);
  add_adapters(table, config.adapters);
  table.add("bert-head", &config.bert_head, "Output head of a BERT.");
  table.add("class-names", &config.class_names, "Names of the classes.");
  table.add("model-digest", &config.model_digest, "Checksum of the model's file.");
  add_family_rules(table);
  return table;
}

namespace {

// The option --dtype of commands that rewrite a checkpoint.
void add_dtype(OptionTable& table, std::optional<DType>& dtype) {
  table.add("dtype", &dtype, "Data type of all tensors, rounded to nearest.").absent("as they are");
}
void add_max_memory(OptionTable& table, double& mebibytes) {
  table.add("max-memory", &mebibytes, "Memory to use in MiB, besides the file cache.").range(8, 1 << 30);
}

}  // namespace

OptionTable options_of(FinetuneConfig& config) {
  OptionTable table;
  PretrainConfig& run = config.run;
  add_task(table, config);
  add_adapters(table, run.model.adapters);
  add_tokenizer_of_model(table, run.data);
  add_batch(table, run.batch);
  add_length(table, run.batch, run.seed);
  add_lr(table, run.lr);
  add_optimizer(table, run.optimizer);
  add_weight_decay_ramp(table, run.optimizer);
  add_precision(table, run.precision);
  add_mesh(table, run.mesh);
  add_device_choices(table, run.mesh);
  add_pipeline(table, run.pipeline, run.mesh);
  add_zero(table, run.zero);
  add_recompute(table, run.mesh);
  add_memory_limit(table, run.mesh);
  add_checkpoint(table, run.checkpoint);
  add_model_folders(table, run.checkpoint);
  table.group("Evaluation");
  table.add("eval-interval", &run.eval.eval_interval, "Evaluate every N steps, and at the end.")
      .range(1, kMaxCount)
      .absent("at the end")
      .only_with("valid-data");
  add_early_stop(table, run.eval.early_stop_patience);
  add_log(table, run.log);
  add_model_numbers(table, run.log);
  table.change("trace").only_with("train-data", "because nothing is trained without it");
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
  add_load_ema(table, config.load_ema);
  table.add("prompt", &config.prompt, "Text to continue; if empty, the model starts from scratch.")
      .excludes("chat", "which reads what is said from the terminal or stdin");
  table
      .add("max-new-tokens", &config.max_new_tokens, "Number of tokens to generate, at most; of each answer.")
      .range(1, kMaxSize);
  table.add("num-samples", &config.num_samples, "Number of texts to generate.")
      .range(1, kMaxSize)
      .excludes("chat");
  table
      .add(
          "stop", &config.stop,
          "Texts that end the continuation, which is printed up to the first of them. The tokens with which the model "
          "ends a text always do.")
      .takes("TEXT")
      .absent("none");
  add_tokenizer_of_model(table, config.data);
  table.group("Conversation");
  table.add(
      "chat", &config.chat,
      "Talk with the model by its chat template. On a terminal: /reset forgets the conversation, /exit or Ctrl-D "
      "ends it, Ctrl-C stops an answer, and a backslash at the end of a line continues on the next. Otherwise "
      "each line of stdin is a message, and only the answers are printed. Of a conversation that is longer than "
      "the model's window, the oldest messages are left out.");
  table.add("system", &config.system, "Message of the system, with which the conversation begins.")
      .takes("TEXT")
      .absent("none")
      .only_with("chat");
  add_chat_template(table, config.data);
  for (const char* name : {"chat-template", "chat-date"}) table.change(name).only_with("chat");
  table.group("Sampling");
  table.add("temperature", &config.temperature, "Sampling temperature; 0 always takes the likeliest token.")
      .at_least(0);
  table.add("top-k", &config.top_k, "Sample from this many of the likeliest tokens; 0: from all.")
      .range(0, kMaxSize)
      .no_effect_with({"temperature", "0"}, "which always takes the likeliest token")
      .as_note();
  table.add("top-p", &config.top_p, "Sample from the likeliest tokens that together reach this probability.")
      .no_effect_with({"temperature", "0"}, "which always takes the likeliest token")
      .as_note()
      .bounds = {0, 1, true, false};
  table
      .add(
          "min-p", &config.min_p,
          "Sample from tokens of at least this part of the likeliest one's probability; 0: from all. Applied last, "
          "after --temperature, --top-k and --top-p.")
      .range(0, 1)
      .no_effect_with({"temperature", "0"}, "which always takes the likeliest token")
      .as_note();
  table
      .add(
          "repetition-penalty", &config.repetition_penalty,
          "Make tokens that the text already has less likely, the prompt's included: their logits are divided by this "
          "if they are positive, and multiplied otherwise. Applied first; below 1 repetition becomes likelier.")
      .positive();
  add_seed(table, config.seed, "Seed of the sampling.")
      .no_effect_with({"temperature", "0"}, "which always takes the likeliest token")
      .as_note();
  add_sampling_ranks(table, config.tensor_model_parallel_size, config.threads_per_rank);
  table.add(
      "no-key-value-cache", &config.no_key_value_cache,
      "Compute the whole text again for every token, without keeping keys and values: slower, with less memory. A "
      "text longer than the model's window is always computed so, because its positions move with every token.");
  return table;
}

OptionTable options_of(EvaluateConfig& config) {
  OptionTable table;
  table.group("Checkpoint");
  table.add("load", &config.load, "Folder of the checkpoint; it holds the model.")
      .need()
      .names("DIR", FileUse::Loaded);
  add_load_ema(table, config.load_ema);
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
  table
      .add(
          "top-k", &config.top_k,
          "Also print how many labels are among this many of the likeliest classes; for models from files with a "
          "cross entropy.")
      .range(1, kMaxSize)
      .absent("the likeliest class only");
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
  table.add("diff", &config.diff, "Another checkpoint or Hugging Face folder to compare with.")
      .names("DIR", FileUse::Loaded)
      .absent("none");
  table.group("Runs that ended badly");
  table
      .add("flight", &config.flight,
           "Instead of a checkpoint, read the files that ranks left under --flight-dir, and name the first "
           "rank that did not come to a call that others wait in.")
      .reads("DIR")
      .absent("none")
      .excludes("verify", "because a flight recorder has no checksums")
      .excludes("diff", "because only checkpoints are compared");
  return table;
}

OptionTable options_of(ImportConfig& config) {
  OptionTable table;
  table.group("Report");
  table.add(
      "format", &config.format,
      "line: print the options as words to paste, and what has no meaning here on standard error; config: print a "
      "file for --config, with the rest as comments.");
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
  add_load_ema(table, config.load_ema);
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
  table
      .add("hugging-face-family", &config.hugging_face_family,
           "Hugging Face's files: the model_type to write, such as mistral, "
           "if several families have the model.")
      .takes("TYPE")
      .absent("the family that the checkpoint came from, or else the most common one that has the model");
  table.add(
      "names", &config.names,
      "Recommender, .safetensors: the names of its weights, those of its checkpoint or of TorchRec's DLRM.");
  table
      .add("changed-since", &config.changed_since,
           "Recommender, .safetensors: an older checkpoint of the model; of each table, "
           "only the rows that differ from it are written.")
      .names("DIR", FileUse::Loaded)
      .absent("all rows are written");
  table.add(
      "merge-adapters", &config.merge_adapters,
      "Low-rank adapters: write a Hugging Face model in which they are added to the weights, instead of the "
      "adapters in the format of the peft library.");
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
  for (const char* name : {"enable-cuda-graph", "tune-products", "cpu-offloading-num-layers"})
    table.change(name).only_with({"what", "step"}, {}, "leave it out, or measure steps");
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
  add_plan(table, config);
  add_goodput(table, config.goodput);
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

OptionTable options_of(DoctorConfig& config) {
  OptionTable table;
  table.group("Report");
  table.add("json", &config.json, "Write the report to this file as JSON; -: print it instead of the table.")
      .writes("FILE", {json_mark("doctor")})
      .absent("none")
      .of_host();
  return table;
}

OptionTable options_of(ReportConfig& config) {
  OptionTable table;
  table.group("Report");
  table.add("output", &config.output, "The page.")
      .need()
      .writes("FILE.html", {html_mark("report")})
      .of_host();
  table.group("Trace");
  table
      .add("trace", &config.trace,
           "Also write what every rank did in its last steps, and the planned step beside it, for Perfetto.")
      .writes("FILE", {trace_mark()})
      .absent("none")
      .needs("flight");
  table.add("flight", &config.flight, "The files that the ranks of the first RUN left under --flight-dir.")
      .reads("DIR")
      .absent("none")
      .only_with("trace");
  return table;
}

}  // namespace trifold
