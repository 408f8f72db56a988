// The user's configuration: one typed struct per subject. Models are in config/fields/model_config.h, recommenders in
// config/fields/recommend_config.h, training steps in config/fields/training_config.h. Field names are the option names with underscores; names and
// defaults are Megatron-LM's where it has the option (config/commands/option_tables.cpp binds them and holds the help
// texts). A `std::optional` that is not given is derived from other values; a trailing comment names them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/fields/choices.h"
#include "config/fields/goodput_config.h"
#include "config/fields/model_config.h"
#include "config/fields/recommend_choices.h"
#include "config/fields/training_config.h"
#include "config/fields/values.h"
#include "core/dtype.h"

namespace trifold {

// The blocks of each pipeline stage (config/subjects/pipeline_cut.h).
struct StageCutConfig {
  PipelineCut pipeline_cut = PipelineCut::Cost;
  std::optional<std::string> pipeline_model_parallel_layout;  // every stage, as Megatron-LM spells it
  std::optional<int64_t> decoder_first_pipeline_num_layers;   // layers on the first pipeline rank
  std::optional<int64_t> decoder_last_pipeline_num_layers;    // layers on the last pipeline rank
  bool account_for_embedding_in_pipeline_split = false;       // counts as a layer of the first stage
  bool account_for_loss_in_pipeline_split = false;            // counts as a layer of the last stage

  bool given() const {
    return pipeline_cut != PipelineCut::Cost || pipeline_model_parallel_layout ||
           decoder_first_pipeline_num_layers || decoder_last_pipeline_num_layers ||
           account_for_embedding_in_pipeline_split || account_for_loss_in_pipeline_split;
  }
};

// The layout of the model on the machines. None of it changes what is computed, so it is not part of the model's
// identity in a checkpoint.
struct MeshConfig {
  int ranks = 1;  // ranks as threads of this process; under MPI the number of processes
  int tensor_model_parallel_size = 1;
  int pipeline_model_parallel_size = 1;
  int context_parallel_size = 1;                // ranks over which the positions of each sample are sharded
  std::optional<ContextExchange> cp_comm_type;  // with several context ranks; absent: all_gather
  ContextExchange context_exchange() const { return cp_comm_type.value_or(ContextExchange::AllGather); }
  // Ranks of a pipeline stage that share the experts of a layer: each expert-parallel rank holds some of the experts;
  // each expert tensor rank holds a part of each.
  int expert_model_parallel_size = 1;
  int expert_tensor_parallel_size = 1;
  int64_t expert_ranks() const { return int64_t{expert_model_parallel_size} * expert_tensor_parallel_size; }
  TokenDispatcher moe_token_dispatcher_type = TokenDispatcher::AllToAll;
  // The most rows that an expert rank receives at a time, as a multiple of the mean; absent: all that can arrive.
  std::optional<double> moe_buffer_factor;
  // Alternates the forward and the backward that a schedule pairs: one computes while the other exchanges experts'
  // rows.
  bool overlap_moe_expert_parallel_comm = false;
  // Activations between the tensor-parallel regions are sharded by rows over the tensor axis (arXiv 2205.05198).
  bool sequence_parallel = false;
  RecomputeGranularity recompute_granularity = RecomputeGranularity::None;
  int64_t tiled_mlp = 1;  // tiles of rows that pass the MLP one after the other (tensor_parallel/tiled_mlp.h)
  // Vocabulary parts into which the output layer is cut, each a block that a stage may begin or end with
  // (tensor_parallel/vocab_part.h); 1: one block.
  int pipeline_vocab_parts = 1;
  // The number of first layers of each stage whose activations are kept in a file in this folder between forward and
  // backward.
  int64_t cpu_offloading_num_layers = 0;
  std::optional<std::string> cpu_offloading_folder;
  StageCutConfig cut;
  std::optional<int> data_parallel_size;  // ranks / (tensor * context * pipeline)
  std::optional<int> ranks_per_node;      // consecutive ranks that share a node; by host name
  std::optional<int> threads_per_rank;    // the cores of the host, divided among its ranks
  ComputeDevice device = ComputeDevice::Auto;
  bool enable_cuda_graph = false;  // capture the work of blocks in CUDA graphs (pipeline/block_graphs.h)
  // A file with the algorithms of matrix products on CUDA devices (train/tune_products.h); "off": none.
  std::string tune_products = "off";
  bool no_deterministic_mode = false;  // faster attention on CUDA devices; bits differ between runs
  double distributed_timeout_minutes = 10;
  std::optional<std::string> flight_dir;  // the flight recorders' files (run/flight/flight_run.h)
  std::optional<double> memory_limit;     // GiB that a rank may use; the host's memory / its ranks
};

// The order in which micro-batches pass through the stages of the model (config/fields/schedule.h).
struct PipelineConfig {
  std::optional<ScheduleChoice> schedule;  // 1f1b, or interleaved if a rank has several stages
  // The number of stages per rank, given in one of two ways; see stages_per_rank in config/fields/pipeline_choice.h. A
  // schedule from a file defines its own stages.
  std::optional<int64_t> num_layers_per_virtual_pipeline_stage;
  std::optional<int> num_virtual_stages_per_pipeline_rank;
  // For schedule auto: the most micro-batches whose activations a rank may keep at once (absent: twice the pipeline
  // ranks), and a file of `bench --what blocks --json` with measured block times (absent: estimated from flops).
  std::optional<int> schedule_max_in_flight;
  std::optional<std::string> schedule_costs;
  // Asynchronous schedules only: global batches between two drains of the pipeline.
  std::optional<int64_t> async_window;
};

struct DataConfig {
  std::vector<std::string>
      arrays;  // [NAME=]PATH ...; arrays of a model from a file (graph/data/array_files.h)
  std::vector<std::string> data_path;  // [weight] path ...; a .bin/.idx prefix, text, or a folder of text
  bool mock_data = false;              // random tokens instead of data
  std::vector<std::string> train_data_path, valid_data_path;  // data of each part, instead of data_path
  std::optional<std::string>
      data_schedule;               // file with the weights of the paths over the run (text/data_schedule.h)
  std::string split = "969,30,1";  // training, validation, test
  std::optional<TokenizerType> tokenizer_type;  // byte for text, none for .bin/.idx
  std::optional<std::string> tokenizer_model;   // file of the SentencePiece model, or a tokenizer.json
  std::optional<std::string> tokenizer_merges;  // gpt2-bpe: file of the merges
  std::optional<std::string> eod_token;         // text of the token that ends a document; the tokenizer's
  // The chat template (tokenize/chat/chat_template.h): its file, or the name of one of the model's; the model's own. And
  // the date that it sees; today's. Both are kept in checkpoints with the tokenizer.
  std::optional<std::string> chat_template;
  std::optional<Day> chat_date;
  // Not an option: the template's text, which checkpoints keep in a file of their own.
  std::optional<std::string> chat_template_text;
  std::optional<TiktokenPattern> tiktoken_pattern;     // tiktoken: the file's, or a neighbour's
  std::optional<int64_t> tiktoken_num_special_tokens;  // ids before the ids of the text; the file's
  std::vector<std::string> tiktoken_special_tokens;    // texts of the first of them; the file's
  // encode, but refuse with tiktoken: what the libraries of the files do
  std::optional<SpecialTokensInText> special_tokens_in_text;
  // Treatment of several documents packed into a sample; each but the last ends with its end-of-document token
  // (text/samples.h).
  bool eod_mask_loss = false;
  bool reset_position_ids = false;
  bool reset_attention_mask = false;
  // For BERT's sentence pairs (tasks/bert_samples.h).
  double mask_prob = 0.15;
  double short_seq_prob = 0.1;
  bool whole_word_masking = false;
  bool split_sentences = false;
  std::string json_key = "text";  // field of a JSON line with the text
  OnBadRecord on_bad_record = OnBadRecord::Stop;
  int64_t max_bad_records = 1000;  // with Skip: the run ends if more than this many were skipped
};

struct CheckpointConfig {
  std::optional<std::string> save;
  std::optional<int64_t> save_interval;  // the end of the run is saved too
  std::optional<std::string> load;       // a missing checkpoint is an error
  bool auto_resume = false;              // continue from the checkpoint in `save`, if there is one
  bool finetune = false;                 // load only the weights
  std::optional<int64_t> ckpt_step;      // the checkpoint of `load` to read; absent: the newest
  bool no_load_optim = false;            // continue from `load` with a new optimizer state
  bool no_save_optim = false;            // save no optimizer state
  bool moe_use_upcycling =
      false;                // `load` is a dense model; every expert becomes a copy (train/start/upcycling.h)
  bool async_save = false;  // write while training continues
  std::optional<int> save_retain;  // number of newest good checkpoints to keep; absent: all
  bool save_best = false;          // save and mark the model after each evaluation that is the best so far
  OnSaveError on_save_error = OnSaveError::Stop;
  bool allow_changed_data = false;  // resume although the data differ from the checkpoint's
  // Steps between comparisons of replicated weights and optimizer state; 0: never. Absent: before each save.
  std::optional<int64_t> check_replicas;
  // Hugging Face folders while training (run/model_folders.h).
  std::optional<std::string> save_hf;              // the folder that holds them
  std::optional<int64_t> save_hf_interval;         // steps between them
  std::optional<DType> save_hf_dtype;              // type of their tensors; the type of checkpoints
  std::optional<std::string> hugging_face_family;  // 'model_type' of their config.json; the first that fits
};

struct EvalConfig {
  std::optional<int64_t> eval_interval;  // absent: no evaluation while training
  int64_t eval_iters = 100;
  std::optional<int64_t> early_stop_patience;  // evaluations in a row without improvement; absent: no limit
  std::optional<std::string> sample_prompt;    // a text to continue at every evaluation
};

// What a run notices of its ranks and of its loss while it trains.
struct WatchConfig {
  // Time-outs learned from the run (run/flight/wait_limits.h).
  double timeout_factor = 20;  // 0: none
  double timeout_floor_seconds = 300;
  int64_t straggler_interval = 0;  // steps between comparisons (run/health/stragglers.h); 0: none
  // run/health/loss_watch.h
  OnLossSpike on_loss_spike = OnLossSpike::Ignore;
  double loss_spike_factor = 10;
  int64_t loss_spike_skip = 10;  // the steps, up to that of the spike, that are skipped after a rollback
  std::vector<StepNumber> iterations_to_skip;
  // run/flight/step_trace.h
  std::optional<std::string> trace;   // file for Perfetto
  std::optional<int64_t> trace_from;  // the third step of this start, or an earlier one if it has few
  int64_t trace_steps = 3;
};

struct LogConfig {
  int64_t log_interval = 100;
  std::optional<std::string> log_json;
  bool log_block_grad_norms = false;
  bool log_params_norm = false;
  bool log_num_zeros_in_grad = false;
  std::optional<std::string> tensorboard_dir;
  std::optional<int> metrics_port;
  std::string metrics_address = "127.0.0.1";
  int64_t check_overlap = 0;  // number of first steps that are computed twice (run/checks/overlap_check.h)
  WatchConfig watch;
};

// Sharding over data-parallel ranks (zero/zero_stage.h), and their communication.
struct ZeroConfig {
  int zero_stage = 0;
  std::optional<int64_t> zero_min_unit_params;  // smallest unit (docs/glossary.md), in parameters; 4 Mi
  // Data-parallel ranks per group that shards the state; every group holds a full copy. Absent: all ranks.
  std::optional<GroupSize> zero_group_size;
  Offload offload;  // optimizer state, and sharded weights
  bool offloads() const { return offload.to != Offload::To::None; }
  bool offloads_to_host() const { return offload.to == Offload::To::Host; }
  std::optional<ReducePolicy> zero_reduce;  // each if gradients are sharded and a step has one micro-batch
};

struct PretrainConfig {
  ModelConfig model;
  MeshConfig mesh;
  PipelineConfig pipeline;
  ZeroConfig zero;
  BatchConfig batch;
  LrConfig lr;
  OptimizerConfig optimizer;
  PrecisionConfig precision;
  DataConfig data;
  CheckpointConfig checkpoint;
  EvalConfig eval;
  LogConfig log;
  uint64_t seed = 1234;
  // A device (plan/forecast/hardware.h) for which the layout is chosen before the run begins. The searched options stay
  // unset when such a configuration is resolved (config/commands/search_axes.h).
  std::optional<std::string> auto_layout;
};

// `trifold finetune`: trains the model of a checkpoint, with its tokenizer, as `run` says, with a head for the task;
// `run.model` and `run.data.data_path` are set when the files are read.
struct FinetuneConfig {
  PretrainConfig run;
  std::optional<FinetuneTask> task;       // required
  std::optional<std::string> train_data;  // absent: a finetuned model is only evaluated
  std::optional<std::string> valid_data;
  std::optional<std::string> predictions;  // file for the answers to valid_data
  std::optional<int64_t> seq_length;       // the checkpoint's, as are the next two
  std::optional<double> hidden_dropout, attention_dropout;
  // Conversations only (tasks/chat/chat_samples.h).
  ChatPacking packing = ChatPacking::BestFit;
  TruncationMode truncation_mode = TruncationMode::KeepStart;
  int64_t doc_stride = 128;  // this and all below: squad only
  int64_t max_query_length = 64;
  int64_t max_answer_length = 30;
  double null_score_diff_threshold = 0;
  PairLossConfig dpo;  // this and all below: dpo only
  PairReference dpo_reference = PairReference::Model;
  std::optional<std::string> dpo_reference_model;   // the model of --load
  std::optional<std::string> dpo_reference_folder;  // the folder of --save
};

// `trifold generate`: the model is read from the checkpoint, and so is its tokenizer unless one is given here.
struct GenerateConfig {
  std::string load;       // required: directory of the checkpoint
  bool load_ema = false;  // the exponential average of the weights, from a run with --ema
  DataConfig data;        // only the tokenizer's fields are used
  std::string prompt;     // may be empty
  int64_t max_new_tokens = 256;
  double temperature = 1.0;  // 0: always the most likely token
  int64_t top_k = 0;         // 0: all tokens
  double top_p = 1.0;        // keep the most likely tokens that together reach this probability
  double min_p = 0;          // keep tokens of at least this part of the most likely one's probability
  double repetition_penalty = 1;
  std::vector<std::string> stop;      // texts that end the continuation
  bool chat = false;                  // a conversation on the terminal or over stdin
  std::optional<std::string> system;  // the system's message
  bool no_key_value_cache = false;
  int64_t num_samples = 1;
  uint64_t seed = 1234;
  int tensor_model_parallel_size = 1;
  std::optional<int> threads_per_rank;  // all cores of the host
};

// `trifold evaluate`: the model is read from the checkpoint, and so is its tokenizer unless one is given here.
struct EvaluateConfig {
  std::string load;       // required
  bool load_ema = false;  // the exponential average of the weights, from a run with --ema
  DataConfig data;        // data_path is required
  Split part = Split::Valid;
  // Batches of micro_batch_size * data-parallel size sequences; the whole split.
  std::optional<int64_t> eval_iters;
  int64_t micro_batch_size = 4;
  std::optional<int64_t> seq_length;  // the checkpoint's
  MeshConfig mesh;
  std::optional<std::string> log_json;
  std::optional<int64_t> top_k;                 // labels among so many of the likeliest classes are counted
  std::optional<std::string> loss_by_position;  // file for the mean loss at each position of the sequences
};

// `trifold inspect DIR`
struct InspectConfig {
  std::string directory;              // given without an option name; required without `flight`
  bool verify = false;                // read every byte again and compare checksums
  std::optional<std::string> diff;    // another checkpoint
  std::optional<std::string> flight;  // the flight recorders' files
};

// `trifold import-config FILE`
enum class ImportFormat { Line, Config };
template <>
struct Names<ImportFormat> {
  static constexpr Named<ImportFormat> kAll[] = {{ImportFormat::Line, "line"},
                                                 {ImportFormat::Config, "config"}};
};
struct ImportConfig {
  std::string file;  // required, given without an option name
  ImportFormat format = ImportFormat::Line;
};

// `trifold reshard`: the target is a mesh, or a number of files.
struct ReshardConfig {
  std::string load;  // required
  std::string save;  // required
  MeshConfig mesh;   // sizes and sequence_parallel; `ranks` above 1 must agree with the sizes
  PipelineConfig pipeline;
  ZeroConfig zero;
  std::optional<int> files;    // instead of a mesh
  std::optional<DType> dtype;  // type of all tensors; unchanged
  bool no_save_optim = false;  // weights only
  double max_memory = 256;     // MiB
};

// `trifold convert`: the kind of `load` decides the direction.
struct ConvertConfig {
  std::string load;            // required: a checkpoint, or a folder with config.json and safetensors files
  std::string save;            // required
  bool load_ema = false;       // the exponential average of the weights, from a run with --ema
  std::optional<DType> dtype;  // type of all tensors; unchanged
  double max_file_size = 5;    // GB (1e9 bytes) per safetensors file
  std::optional<int64_t> seq_length;  // length in the written checkpoint; all positions of the model
  std::optional<std::string> hugging_face_family;  // 'model_type' of the written files; the first that fits
  WeightNames names = WeightNames::Trifold;        // names of a recommender's weights in a safetensors file
      // An older checkpoint of a recommender: only rows that differ from it are written.
  std::optional<std::string> changed_since;
  bool merge_adapters = false;  // write the weights that adapters give, instead of the adapters
  double max_memory = 256;      // MiB
};

// `trifold bench`: `run` holds GPT-2 124M (12 layers, width 768, 12 heads, 50257 tokens) by default; its train_iters
// becomes warmup_iters + iters when the configuration is resolved. It reads no data.
struct BenchConfig {
  BenchConfig();

  PretrainConfig run;
  std::vector<BenchPart> what = {BenchPart::Step, BenchPart::Gemm};
  int64_t warmup_iters = 2;
  int64_t iters = 5;
  std::optional<std::string> json;  // file for the results
};

// `trifold plan`: the forecast of `run`, computed without starting ranks. Takes the options of pretrain; data, steps
// and learning rate are not needed. Costs are per rank; the defaults are roughly a GPU's in arXiv 2104.04473: half of
// an A100's 312 TFLOP/s, NVLink inside a node, one 200 Gbit/s adapter per GPU between nodes.
struct PlanConfig {
  PlanConfig();

  PretrainConfig run;
  GoodputConfig goodput;
  std::optional<std::string> svg;
  std::optional<std::string> schedule_csv;
  PlanFormat format = PlanFormat::Trifold;
  std::optional<std::string> json;
  bool records = false;  // print and write what a rank does with a micro-batch, operation by operation
  double peak_gflops = 150'000;        // GFLOP/s of matrix products
  double tensor_link_bandwidth = 250;  // GB/s (1e9 bytes) between ranks that share a layer
  double link_bandwidth = 25;          // GB/s between stages and between data-parallel replicas
  double link_latency = 5;             // microseconds of a message
  double moe_load_imbalance = 1;  // rows of the busiest of the ranks that share experts, relative to the mean
  double offload_bandwidth = 2;   // GB/s between memory and the file of off-loaded activations
  std::optional<std::string> costs;  // file that `bench --what blocks --json` wrote
  // A device by name or file, which replaces the five values above (plan/forecast/hardware.h); changes to it; and
  // assumptions about the program that runs the step (plan/forecast/software.h), each as "KEY=VALUE".
  std::optional<std::string> hardware;
  std::vector<std::string> hardware_set;
  std::vector<std::string> assume;
  // Search for the best layout instead of planning the layout of `run`, and the axes to search
  // (config/commands/search_axes.h).
  bool search = false;
  std::vector<SearchAxis> search_over;           // empty: all of them
  std::vector<ScheduleChoice> search_schedules;  // empty: the default of schedules_searched
  // Not options: the words after `trifold rehearse` that rehearse the planned run (empty: unknown), and whether options
  // give the length of the run, of which train_iters 1 is the default.
  std::vector<std::string> rehearsal_words;
  bool length_given = false;
};

// `trifold plan --lines FILE`: many plans in one process, one line of `plan` options each.
struct PlanLinesConfig {
  std::string lines;         // required
  bool closed_form = false;  // step times alone, without memory and simulation
};

// `trifold report`: logs of runs as one page.
struct ReportConfig {
  std::vector<std::string> runs;     // required, given without an option name: logs, or folders that have one
  std::string output;                // required
  std::optional<std::string> trace;  // for Perfetto
  std::optional<std::string> flight;  // the flight recorders' files
};

// `trifold doctor`: what this host and this build have.
struct DoctorConfig {
  std::optional<std::string> json;  // file for the report; "-": standard output, instead of the table
};

// `trifold tokenize`: text or JSON lines -> output_prefix.bin and output_prefix.idx
struct TokenizeConfig {
  std::string input;          // required
  std::string output_prefix;  // required
  std::vector<std::string> json_keys = {"text"};
  DataConfig data;  // only the tokenizer's fields and the reaction to bad records are used
  bool append_eod = false;
};

}  // namespace trifold
