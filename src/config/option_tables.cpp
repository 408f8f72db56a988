#include "config/option_tables.h"

#include "config/pipeline_choice.h"
#include "core/error.h"

namespace trifold {
namespace {

// Upper bounds far beyond any real run, so that products of sizes never overflow 64 bits.
constexpr double kMaxSize = 1 << 30;
constexpr double kMaxRanks = 1 << 20;
constexpr double kMaxCount = 1e12;
constexpr double kMaxLossScale = 1e30;  // a scaled loss must stay a finite f32

// What makes a Llama of a GPT.
void add_architecture(OptionTable& table, ModelConfig& model) {
  table
      .add("position-embedding-type", &model.position_embedding_type,
           "How the model knows positions: learned vectors, queries and keys turned by angles, not at all.")
      .one_of({"learned_absolute", "rope", "none"});
  table.add("rotary-base", &model.rotary_base, "Base of the angles of rope.").range(1, 1e12);
  table.add("rotary-percent", &model.rotary_percent, "Fraction of each head that rope turns.").bounds = {
      0, 1, true, false};
  table.add("use-rope-scaling", &model.use_rope_scaling,
            "Stretch rope beyond 8192 positions as Llama 3.1 does.");
  table.add("rope-scaling-factor", &model.rope_scaling_factor, "How far --use-rope-scaling stretches.")
      .range(1, 1e6);
  table.add("group-query-attention", &model.group_query_attention,
            "Several query heads share a key and value head: --num-query-groups of these.");
  table.add("num-query-groups", &model.num_query_groups, "Key and value heads; they divide the heads.")
      .range(1, kMaxSize);
  table.add("kv-channels", &model.kv_channels, "Width of a head.")
      .range(1, kMaxSize)
      .absent("--hidden-size / --num-attention-heads");
  table.add("qk-layernorm", &model.qk_layernorm, "Normalize queries and keys, head by head.");
  table.add("normalization", &model.normalization, "How activations are normalized.")
      .one_of({"LayerNorm", "RMSNorm"});
  table.add("swiglu", &model.swiglu, "Gated feed-forward network, silu(gate) x up, instead of GELU.");
  table
      .add("gelu", &model.gelu,
           "Form of GELU: the usual approximation with tanh, or erf itself, as Hugging Face's BERTs have it.")
      .one_of({"tanh", "erf"});
  table.add("disable-bias-linear", &model.disable_bias_linear, "No biases in linear layers.");
}

void add_model(OptionTable& table, ModelConfig& model) {
  table.group("Model");
  table
      .add("model-type", &model.model_type,
           "gpt guesses the next token (a Llama with the options for it); bert guesses masked tokens and "
           "whether sentences follow each other.")
      .one_of({"gpt", "bert"});
  table.add("num-layers", &model.num_layers, "Transformer blocks.").need().range(1, 1 << 20);
  table.add("hidden-size", &model.hidden_size, "Width of the model.").need().range(1, kMaxSize);
  table
      .add("num-attention-heads", &model.num_attention_heads,
           "Attention heads; they divide the hidden size unless --kv-channels is given.")
      .need()
      .range(1, kMaxSize);
  table.add("ffn-hidden-size", &model.ffn_hidden_size, "Inner width of the feed-forward network.")
      .range(1, kMaxSize)
      .absent("4 x --hidden-size, 8/3 x with --swiglu");
  table.add("seq-length", &model.seq_length, "Tokens of a training sequence.").need().range(1, kMaxSize);
  table.add("max-position-embeddings", &model.max_position_embeddings, "Positions the model can tell apart.")
      .range(1, kMaxSize)
      .absent("--seq-length");
  add_architecture(table, model);
  table.add("vocab-size", &model.vocab_size, "Tokens of the vocabulary, before padding.")
      .range(1, kMaxSize)
      .absent("the tokenizer's");
  table
      .add("make-vocab-size-divisible-by", &model.make_vocab_size_divisible_by,
           "The vocabulary is padded to a multiple of this times the tensor parallel size.")
      .range(1, kMaxSize);
  table.add("untie-embeddings-and-output-weights", &model.untie_embeddings_and_output_weights,
            "Give the output head a weight of its own instead of the token embedding's.");
  table.add("norm-epsilon", &model.norm_epsilon, "Added to the variance in normalization.").positive();
  table.add("init-method-std", &model.init_method_std, "Standard deviation of the initial weights.")
      .positive();
  table.add("hidden-dropout", &model.hidden_dropout, "Dropout after attention, feed-forward and embedding.")
      .fraction();
  table.add("attention-dropout", &model.attention_dropout, "Dropout of attention probabilities.").fraction();
  table.add("bert-no-binary-head", &model.bert_no_binary_head,
            "bert: masked tokens only; samples are one piece of text, not pairs of sentences.");
}

void add_mesh(OptionTable& table, MeshConfig& mesh) {
  table.group("Mesh of ranks");
  table.add("ranks", &mesh.ranks, "Ranks as threads of this process; under mpirun, the number of processes.")
      .range(1, kMaxRanks);
  table.add("tensor-model-parallel-size", &mesh.tensor_model_parallel_size, "Ranks that share each layer.")
      .range(1, kMaxRanks)
      .also("tp");
  table
      .add("pipeline-model-parallel-size", &mesh.pipeline_model_parallel_size,
           "Ranks in a row, each with its share of the layers.")
      .range(1, kMaxRanks)
      .also("pp");
  table.add("sequence-parallel", &mesh.sequence_parallel,
            "Cut what the tensor ranks would hold alike by rows of the sequence; needs tensor ranks.");
  table
      .add("data-parallel-size", &mesh.data_parallel_size,
           "Copies of the model, each on its share of a batch.")
      .range(1, kMaxRanks)
      .absent("ranks / (tensor x pipeline)")
      .also("dp");
  table
      .add("ranks-per-node", &mesh.ranks_per_node,
           "Ranks that share a node, in order: for what is told of bytes between nodes, and for "
           "--zero-group-size node.")
      .range(1, kMaxRanks)
      .absent("host names tell; one node for a plan");
  table.add("threads-per-rank", &mesh.threads_per_rank, "Threads of each rank for arithmetic.")
      .range(1, 1 << 16)
      .absent("the cores of the host, shared out over its ranks");
  table.add("device", &mesh.device, "Where arithmetic runs; auto is the processor.")
      .one_of({"cpu", "cuda", "auto"});
  table
      .add("distributed-timeout-minutes", &mesh.distributed_timeout_minutes,
           "Minutes that a rank waits for another before it gives up.")
      .range(0.001, 525'600);
}

// Of commands that train; the group is that of add_mesh.
void add_graphs(OptionTable& table, MeshConfig& mesh) {
  table.add("enable-cuda-graph", &mesh.enable_cuda_graph,
            "Capture what each block launches in its second step, and launch it as one from then on; "
            "--device cuda, no tensor ranks.");
}

void add_zero(OptionTable& table, ZeroConfig& zero) {
  table.group("ZeRO");
  table
      .add("zero-stage", &zero.zero_stage,
           "What data-parallel ranks share out: 1 the optimizer state, 2 also gradients, 3 also the weights; "
           "0 "
           "nothing.")
      .range(0, 3);
  table
      .add("zero-min-unit-params", &zero.zero_min_unit_params,
           "Least parameters of a unit, which is what is reduced, published and gathered at once.")
      .range(1, int64_t{1} << 40)
      .absent("4194304");
  table
      .add("zero-group-size", &zero.zero_group_size,
           "Data-parallel ranks that share: a number, or those of a node; ranks of other groups hold the "
           "same, "
           "and only slices of gradients travel between groups.")
      .takes("N|node")
      .suggest({"node"})
      .absent("all data-parallel ranks");
  table.add("offload", &zero.offload,
            "Folder on a fast disk where the optimizer state lies, and with --zero-stage 3 the slices of the "
            "weights: a mapped file a rank, of which only what is being used is in memory. host: with "
            "--device cuda, the optimizer state in "
            "the host's memory. none: in memory.");
  table
      .add(
          "zero-reduce", &zero.zero_reduce,
          "When gradients are summed over data-parallel ranks: once a step, or after each micro-batch, which "
          "sends more and holds less; needs --zero-stage 2.")
      .one_of({"once", "each"})
      .absent("each where the stage is 2 or 3 and a step has one micro-batch, else once");
}

void add_pipeline(OptionTable& table, PipelineConfig& pipeline) {
  table.group("Pipeline");
  table
      .add("schedule", &pipeline.schedule,
           fmt::format("Order of the micro-batches: {}; or a file of actions, one row a rank.",
                       fmt::join(known_schedules(), ", ")))
      .files("NAME|FILE.csv")
      .suggest(known_schedules())
      .absent("1f1b; interleaved where a rank has several stages");
  table
      .add(
          "num-layers-per-virtual-pipeline-stage", &pipeline.num_layers_per_virtual_pipeline_stage,
          "Layers of a stage where a rank has several: so many that this, the stages of a rank and the ranks "
          "multiply to --num-layers.")
      .range(1, 1 << 20)
      .absent("--num-virtual-stages-per-pipeline-rank counts");
  table
      .add("num-virtual-stages-per-pipeline-rank", &pipeline.num_virtual_stages_per_pipeline_rank,
           "Stages of each rank.")
      .range(1, 1 << 20)
      .absent("1; 2 for interleaved, zb-v and dualpipe-v");
  table
      .add("async-window", &pipeline.async_window,
           "Global batches between two drains of the pipeline, for pipedream and pipedream-2bw.")
      .range(1, kMaxCount)
      .absent("100, or --train-iters where that is less");
}

void add_recompute(OptionTable& table, MeshConfig& mesh) {
  table.group("Memory");
  table
      .add(
          "recompute-granularity", &mesh.recompute_granularity,
          "What backward computes again instead of keeping it: attention (selective) or whole layers (full).")
      .one_of({"none", "selective", "full"});
}

void add_batch(OptionTable& table, BatchConfig& batch) {
  table.group("Batch");
  table.add("micro-batch-size", &batch.micro_batch_size, "Sequences that one rank computes at once.")
      .need()
      .range(1, kMaxSize);
  table.add("global-batch-size", &batch.global_batch_size, "Sequences of one step over all ranks.")
      .range(1, kMaxSize)
      .absent("--micro-batch-size x data parallel size");
}

void add_length(OptionTable& table, BatchConfig& batch, uint64_t& seed) {
  table.group("Length of the run");
  table.add("train-iters", &batch.train_iters, "Steps to train.").need("train-epochs").range(1, kMaxCount);
  if (batch.train_epochs) table.change("train-iters").optional().range(0, kMaxCount);
  table
      .add("train-epochs", &batch.train_epochs,
           "Passes over the training part, instead of --train-iters: each sample exactly once in each; the "
           "last global batch has what is left.")
      .range(1, kMaxCount)
      .absent("--train-iters counts");
  table.add("exit-interval", &batch.exit_interval, "Stop, with a checkpoint, after a step divisible by this.")
      .range(1, kMaxCount)
      .absent("train to the end");
  table.add("seed", &seed, "Seed of initial weights, order of the data and dropout.");
}

void add_lr(OptionTable& table, LrConfig& lr) {
  table.group("Learning rate");
  table.add("lr", &lr.lr, "Learning rate after warm-up.").need().positive();
  table.add("min-lr", &lr.min_lr, "Learning rate after decay.").at_least(0);
  table.add("lr-decay-style", &lr.lr_decay_style, "How the rate falls after warm-up.")
      .one_of({"constant", "linear", "cosine", "inverse-square-root", "WSD", "polynomial"});
  table.add("lr-decay-power", &lr.lr_decay_power, "polynomial: power of the share of the decay that is left.")
      .positive();
  table.add("lr-decay-iters", &lr.lr_decay_iters, "Step at which decay ends.")
      .range(1, kMaxCount)
      .absent("--train-iters");
  table.add("lr-warmup-iters", &lr.lr_warmup_iters, "Steps of linear warm-up.").range(0, kMaxCount);
  table
      .add("lr-warmup-fraction", &lr.lr_warmup_fraction,
           "Warm-up as a fraction of --lr-decay-iters; instead of --lr-warmup-iters.")
      .fraction()
      .absent("--lr-warmup-iters counts");
  table.add("lr-warmup-init", &lr.lr_warmup_init, "Learning rate that warm-up starts from.").at_least(0);
  table.add("lr-wsd-decay-style", &lr.lr_wsd_decay_style, "How the rate falls at the end of WSD.")
      .one_of({"exponential", "linear", "cosine", "minus_sqrt"});
  table
      .add("lr-wsd-decay-iters", &lr.lr_wsd_decay_iters, "Steps of the fall at the end of WSD; WSD needs it.")
      .range(1, kMaxCount)
      .absent("no WSD");
}

void add_optimizer(OptionTable& table, OptimizerConfig& optimizer) {
  table.group("Optimizer");
  table.add("optimizer", &optimizer.optimizer, "Update rule; adam decouples weight decay (AdamW).")
      .one_of({"adam", "lamb", "sgd", "adagrad"});
  table.add("weight-decay", &optimizer.weight_decay, "Not applied to biases and one-dimensional tensors.")
      .at_least(0);
  table.add("clip-grad", &optimizer.clip_grad, "Largest norm of the gradient; 0 switches clipping off.")
      .at_least(0);
  table.add("adam-beta1", &optimizer.adam_beta1, "Decay of the first moment; adam and lamb.").fraction();
  table.add("adam-beta2", &optimizer.adam_beta2, "Decay of the second moment; adam and lamb.").fraction();
  table.add("adam-eps", &optimizer.adam_eps, "Added to the root of the second moment; adam and lamb.")
      .positive();
  table.add("sgd-momentum", &optimizer.sgd_momentum, "Decay of the sum of gradients; sgd. 0: no momentum.")
      .fraction();
  table.add("adagrad-eps", &optimizer.adagrad_eps, "Added to the root of the sum of squares; adagrad.")
      .positive();
}

void add_precision(OptionTable& table, PrecisionConfig& precision) {
  table.group("Precision");
  table.add("bf16", &precision.bf16, "Weights and activations in bf16; f32 master weights.");
  table.add("fp16", &precision.fp16, "Weights and activations in fp16; f32 master weights, a scaled loss.");
  table.add("fp8", &precision.fp8,
            "Products of linear layers in 8 bits, E4M3 forward and E5M2 gradients; --bf16, --device cuda, "
            "Hopper.");
  table
      .add("loss-scale", &precision.loss_scale,
           "Fixed factor of the loss before backward, best a power of two.")
      .positive()
      .absent("1 for --bf16, found while training for --fp16");
  table
      .add("initial-loss-scale", &precision.initial_loss_scale,
           "Where the search for the scale begins; fp16.")
      .range(1, kMaxLossScale);
  table.add("min-loss-scale", &precision.min_loss_scale, "Smallest scale that the search tries; fp16.")
      .range(1, kMaxLossScale);
  table
      .add("loss-scale-window", &precision.loss_scale_window,
           "Steps without an overflow after which the scale is doubled; fp16.")
      .range(1, kMaxCount);
  table
      .add("hysteresis", &precision.hysteresis,
           "Overflows that the search puts up with before it halves the scale; fp16.")
      .range(1, kMaxCount);
  table.add("f64", &precision.f64, "Compute everything in double precision, for checks of the mathematics.");
  table.add("grad-reduce-in-bf16", &precision.grad_reduce_in_bf16,
            "Send gradients to other data-parallel ranks in bf16, half the bytes; they are added up in f32.");
}

void add_data(OptionTable& table, DataConfig& data) {
  table.group("Data");
  table
      .add("data-path", &data.data_path,
           "Prefix of a .bin/.idx pair, or text: plain or JSON lines, also .gz or .zst, or a folder of it, "
           "streamed; several make a blend, with a weight before each or none. BERT reads files of plain "
           "text.")
      .need()
      .files("[WEIGHT] PATH ...");
  table.add("split", &data.split, "Shares of training, validation and test.").takes("A,B,C");
  table.add("tokenizer-type", &data.tokenizer_type, "How text becomes tokens.")
      .one_of({"byte", "sentencepiece", "huggingface"})
      .absent("byte for text, none for .bin/.idx");
  table.add("json-key", &data.json_key, "Field of a JSON line that holds its text.").takes("KEY");
  table
      .add("tokenizer-model", &data.tokenizer_model,
           "File of the SentencePiece model, or the tokenizer.json of Hugging Face.")
      .files("FILE")
      .absent("none");
}

void add_pairs(OptionTable& table, DataConfig& data) {
  table.add("mask-prob", &data.mask_prob, "bert: share of the tokens that are masked and guessed.").bounds = {
      0, 1, true, false};
  table.add("short-seq-prob", &data.short_seq_prob, "bert: share of the samples that are made shorter.")
      .fraction();
  table.add("whole-word-masking", &data.whole_word_masking, "bert: mask all tokens of a word together.");
  table.add("split-sentences", &data.split_sentences,
            "bert: lines are cut after '.', '!' and '?'; otherwise a line is a sentence.");
}

void add_checkpoint(OptionTable& table, CheckpointConfig& checkpoint) {
  table.group("Checkpoint");
  table.add("save", &checkpoint.save, "Folder to save checkpoints in.")
      .files("DIR")
      .absent("nothing is saved");
  table.add("save-interval", &checkpoint.save_interval, "Save every so many steps, and at the end.")
      .range(1, kMaxCount)
      .absent("only at the end");
  table.add("load", &checkpoint.load, "Folder to go on from; it must exist. May be that of --save.")
      .files("DIR")
      .absent("start from random weights");
  table.add(
      "auto-resume", &checkpoint.auto_resume,
      "Go on from the newest usable checkpoint in the folder of --save; --load counts where it has none.");
  table.add("finetune", &checkpoint.finetune,
            "Take only the weights of --load: steps, data and optimizer start anew.");
  table.add("async-save", &checkpoint.async_save, "Copy the state, and write it while training goes on.");
  table
      .add("save-retain", &checkpoint.save_retain, "Remove all but this many of the newest good checkpoints.")
      .range(2, 1 << 20)
      .absent("all stay");
  table
      .add("on-save-error", &checkpoint.on_save_error,
           "What a checkpoint that cannot be saved means for the run; the last one must be saved.")
      .one_of({"stop", "continue"});
}

void add_eval(OptionTable& table, EvalConfig& eval) {
  table.group("Evaluation");
  table.add("eval-interval", &eval.eval_interval, "Evaluate every so many steps.")
      .range(1, kMaxCount)
      .absent("no evaluation while training");
  table
      .add("eval-iters", &eval.eval_iters,
           "Batches of one evaluation, always the same; at most the whole validation part, once.")
      .range(0, kMaxCount);
}

void add_log(OptionTable& table, LogConfig& log) {
  table.group("Logging");
  table.add("log-interval", &log.log_interval, "Report progress every so many steps.").range(1, kMaxCount);
  table.add("log-json", &log.log_json, "Append one JSON object a step to this file.")
      .files("FILE")
      .absent("none");
  table
      .add("check-overlap", &log.check_overlap,
           "Compute the first so many steps twice, once with nothing at the same time; end if a bit differs.")
      .range(0, kMaxCount);
}

void add_task(OptionTable& table, FinetuneConfig& config) {
  table.group("Task");
  table
      .add("task", &config.task,
           "classify tells which class a text or a pair of texts is of; squad finds answers in a text.")
      .need()
      .one_of({"classify", "squad"});
  table
      .add("train-data", &config.train_data,
           "classify: a .tsv file whose first line names its columns, text, perhaps text_b, and label, or "
           "JSON "
           "lines with these fields. squad: SQuAD's JSON, version 1.1 or 2.")
      .files("FILE")
      .absent("a tuned model is only evaluated");
  table.add("valid-data", &config.valid_data, "The same, to evaluate with.").files("FILE").absent("none");
  table
      .add("predictions", &config.predictions,
           "Write what the model says of --valid-data: JSON lines of labels, or SQuAD's JSON of answers.")
      .files("FILE")
      .absent("nowhere");
  table.add("seq-length", &config.seq_length, "Tokens of a sample.").range(1, kMaxSize).absent("the model's");
  table.add("hidden-dropout", &config.hidden_dropout, "Dropout after attention, feed-forward and embedding.")
      .fraction()
      .absent("the model's");
  table.add("attention-dropout", &config.attention_dropout, "Dropout of attention probabilities.")
      .fraction()
      .absent("the model's");
  table
      .add("doc-stride", &config.doc_stride,
           "squad: tokens between the beginnings of two windows into a text that is too long.")
      .range(1, kMaxSize);
  table.add("max-query-length", &config.max_query_length, "squad: tokens of a question that are kept.")
      .range(1, kMaxSize);
  table.add("max-answer-length", &config.max_answer_length, "squad: most tokens of an answer.")
      .range(1, kMaxSize);
  table.add("null-score-diff-threshold", &config.null_score_diff_threshold,
            "squad version 2: how much better no answer must score than the best one to be given.");
}

void add_seed(OptionTable& table, uint64_t& seed, std::string help) {
  table.add("seed", &seed, std::move(help));
}

}  // namespace

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
  table.add("eod-mask-loss", &config.data.eod_mask_loss, "Leave end-of-document tokens out of the loss.");
  add_pairs(table, config.data);
  add_batch(table, config.batch);
  add_length(table, config.batch, config.seed);
  add_lr(table, config.lr);
  add_optimizer(table, config.optimizer);
  add_precision(table, config.precision);
  add_mesh(table, config.mesh);
  add_graphs(table, config.mesh);
  add_pipeline(table, config.pipeline);
  add_zero(table, config.zero);
  add_recompute(table, config.mesh);
  add_checkpoint(table, config.checkpoint);
  add_eval(table, config.eval);
  add_log(table, config.log);
  return table;
}

OptionTable options_of(ModelConfig& config) {
  OptionTable table;
  add_model(table, config);
  table.add("bert-head", &config.bert_head, "What a BERT ends in.")
      .one_of({"pretraining", "classes", "span"});
  table.add("class-names", &config.class_names, "The classes it tells apart.");
  return table;
}

OptionTable options_of(FinetuneConfig& config) {
  OptionTable table;
  PretrainConfig& run = config.run;
  add_task(table, config);
  table.group("Tokenizer");
  table.add("tokenizer-type", &run.data.tokenizer_type, "How text becomes tokens.")
      .one_of({"byte", "sentencepiece", "huggingface"})
      .absent("as the model was trained");
  table
      .add("tokenizer-model", &run.data.tokenizer_model,
           "File of the SentencePiece model, or the tokenizer.json of Hugging Face.")
      .files("FILE")
      .absent("as the model was trained");
  add_batch(table, run.batch);
  add_length(table, run.batch, run.seed);
  add_lr(table, run.lr);
  add_optimizer(table, run.optimizer);
  add_precision(table, run.precision);
  add_mesh(table, run.mesh);
  add_graphs(table, run.mesh);
  add_pipeline(table, run.pipeline);
  add_zero(table, run.zero);
  add_recompute(table, run.mesh);
  add_checkpoint(table, run.checkpoint);
  table.group("Evaluation");
  table.add("eval-interval", &run.eval.eval_interval, "Evaluate every so many steps, and at the end.")
      .range(1, kMaxCount)
      .absent("at the end");
  add_log(table, run.log);
  // Without training data there is neither.
  table.change("train-iters").optional().range(0, kMaxCount);
  table.change("lr").optional().at_least(0);
  return table;
}

OptionTable options_of(GenerateConfig& config) {
  OptionTable table;
  table.group("Text");
  table.add("load", &config.load, "Folder of the checkpoint.").need().files("DIR");
  table.add("prompt", &config.prompt, "Text to continue; empty starts from nothing.");
  table.add("max-new-tokens", &config.max_new_tokens, "Tokens to add.").range(1, kMaxSize);
  table.add("num-samples", &config.num_samples, "Texts to write.").range(1, kMaxSize);
  table.group("Sampling");
  table
      .add("temperature", &config.temperature, "Below 1 is more certain; 0 always takes the likeliest token.")
      .at_least(0);
  table.add("top-k", &config.top_k, "Choose among this many likeliest tokens; 0: among all.")
      .range(0, kMaxSize);
  table.add("top-p", &config.top_p, "Choose among the likeliest tokens that reach this probability together.")
      .bounds = {0, 1, true, false};
  add_seed(table, config.seed, "Seed of the choices.");
  table.group("Mesh of ranks");
  table.add("threads-per-rank", &config.threads_per_rank, "Threads for arithmetic.")
      .range(1, 1 << 16)
      .absent("the cores of the host");
  return table;
}

OptionTable options_of(EvaluateConfig& config) {
  OptionTable table;
  table.group("Checkpoint");
  table.add("load", &config.load, "Folder of the checkpoint; it holds the model.").need().files("DIR");
  add_data(table, config.data);
  table.add("eod-mask-loss", &config.data.eod_mask_loss, "Leave end-of-document tokens out of the loss.");
  add_pairs(table, config.data);
  table.add("part", &config.part, "Part of the split to evaluate.").one_of({"train", "valid", "test"});
  table.group("Evaluation");
  table.add("eval-iters", &config.eval_iters, "Batches to evaluate, at most one pass over the part.")
      .range(1, kMaxCount)
      .absent("one pass over the part");
  table.add("micro-batch-size", &config.micro_batch_size, "Sequences that one rank computes at once.")
      .range(1, kMaxSize);
  add_mesh(table, config.mesh);
  table.group("Logging");
  table.add("log-json", &config.log_json, "Append the result to this file.").files("FILE").absent("none");
  return table;
}

OptionTable options_of(InspectConfig& config) {
  OptionTable table;
  table.group("Checks");
  table.add("verify", &config.verify, "Read every byte again and compare it with its checksum.");
  table.add("diff", &config.diff, "Another checkpoint to compare with.").files("DIR").absent("none");
  return table;
}

OptionTable options_of(ReshardConfig& config) {
  OptionTable table;
  table.group("Checkpoint");
  table.add("load", &config.load, "Folder of the checkpoint.").need().files("DIR");
  table.add("save", &config.save, "Folder to write the new one in.").need().files("DIR");
  table.add("files", &config.files, "Cut everything into this many files of equal size, instead of a mesh.")
      .range(1, kMaxRanks)
      .absent("the mesh below");
  table.add("dtype", &config.dtype, "Type of all numbers, rounded to nearest.")
      .one_of({"f32", "f64", "bf16", "f16"})
      .absent("as they are");
  table.add("no-save-optim", &config.no_save_optim, "Leave the optimizer's state out.");
  table.add("max-memory", &config.max_memory, "MiB to use, beyond the file cache.").range(8, 1 << 30);
  add_mesh(table, config.mesh);
  add_pipeline(table, config.pipeline);
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
      .files("DIR");
  table.add("save", &config.save, "Folder to write the other of the two in.").need().files("DIR");
  table.add("dtype", &config.dtype, "Type of all numbers, rounded to nearest.")
      .one_of({"f32", "f64", "bf16", "f16"})
      .absent("as they are");
  table
      .add("max-file-size", &config.max_file_size,
           "GB (1e9 bytes) of a safetensors file; a larger model becomes several, with an index.")
      .positive();
  table
      .add("seq-length", &config.seq_length,
           "Tokens of a sample, as the checkpoint remembers them; for a Hugging Face model.")
      .range(1, kMaxSize)
      .absent("as many as the model has positions");
  table.add("max-memory", &config.max_memory, "MiB to use, beyond the file cache.").range(8, 1 << 30);
  return table;
}

OptionTable options_of(BenchConfig& config) {
  OptionTable table;
  table.group("Benchmark");
  table.add("what", &config.what, "What to measure, separated by commas.")
      .need()
      .one_of({"step", "gemm", "comm", "blocks"});
  table.add("warmup-iters", &config.warmup_iters, "Repetitions before measuring.").range(0, kMaxCount);
  table.add("iters", &config.iters, "Repetitions measured.").range(1, kMaxCount);
  table.add("json", &config.json, "Write the results to this file.").files("FILE").absent("none");
  add_model(table, config.run.model);
  add_batch(table, config.run.batch);
  table.group("Random numbers");
  add_seed(table, config.run.seed, "Seed of initial weights and tokens.");
  add_precision(table, config.run.precision);
  add_mesh(table, config.run.mesh);
  add_graphs(table, config.run.mesh);
  add_pipeline(table, config.run.pipeline);
  add_zero(table, config.run.zero);
  add_recompute(table, config.run.mesh);
  return table;
}

OptionTable options_of(PlanConfig& config) {
  OptionTable table = options_of(config.run);
  for (const char* name : {"data-path", "train-iters", "lr"}) table.change(name).optional();
  table.change("vocab-size").absent("the tokenizer's, where --data-path is given");
  table.group("Plan");
  table.add("svg", &config.svg, "Draw the step in this file: a row a rank, time to the right.")
      .files("FILE.svg")
      .absent("none");
  table
      .add("schedule-csv", &config.schedule_csv,
           "Write every rank's actions to this file, communication included.")
      .files("FILE.csv")
      .absent("none");
  table.add("json", &config.json, "Write the figures to this file.").files("FILE").absent("none");
  table.group("Costs of a rank");
  table.add("peak-gflops", &config.peak_gflops, "GFLOP/s of matrix products.").positive();
  table
      .add("tensor-link-bandwidth", &config.tensor_link_bandwidth,
           "GB/s (1e9 bytes) between the ranks that share a layer.")
      .positive();
  table
      .add("link-bandwidth", &config.link_bandwidth,
           "GB/s (1e9 bytes) between stages, and between copies of the model.")
      .positive();
  table.add("link-latency", &config.link_latency, "Microseconds of a message.").at_least(0);
  table
      .add("costs", &config.costs,
           "Take times that 'bench --what blocks --json FILE' measured, instead of the four above.")
      .files("FILE")
      .absent("none");
  table.add("memory-limit", &config.memory_limit, "GiB a rank has; a plan that needs more is refused.")
      .positive()
      .absent("none");
  return table;
}

OptionTable options_of(TokenizeConfig& config) {
  OptionTable table;
  table.group("Files");
  table.add("input", &config.input, "Text file, or JSON lines when its name ends in .json or .jsonl.")
      .need()
      .files("FILE");
  table
      .add("output-prefix", &config.output_prefix,
           "Writes PREFIX_KEY_document.bin and .idx; KEY is text for a plain text file.")
      .need()
      .files("PREFIX");
  table.add("json-keys", &config.json_keys, "Fields of each JSON line that hold text.")
      .need()
      .takes("KEY ...");
  table.group("Tokenizer");
  table.add("tokenizer-type", &config.tokenizer_type, "How text becomes tokens.")
      .one_of({"byte", "sentencepiece", "huggingface"});
  table
      .add("tokenizer-model", &config.tokenizer_model,
           "File of the SentencePiece model, or the tokenizer.json of Hugging Face.")
      .files("FILE")
      .absent("none");
  table.add("append-eod", &config.append_eod, "End every document with an end-of-document token.");
  return table;
}

OptionTable options_of(PreprocessConfig& config) {
  OptionTable table;
  table.group("Files");
  table
      .add("input", &config.input,
           "Criteo's TSV files, or CSV files with a header, in the order of training.")
      .need()
      .files("FILE ...");
  table.add("output", &config.output, "Folder to make.").need().files("DIR");
  table
      .add("max-malformed", &config.max_malformed,
           "Share of malformed lines that are left out; with more the input is refused.")
      .range(0, 1);
  table.group("Dense numbers");
  table
      .add("dense-transform", &config.dense_transform,
           "What is done to them: log1p ln(max(x,0)+1), log3 ln(x+3), logmin ln(x-least+2), none.")
      .one_of({"none", "log1p", "log3", "logmin"});
  table.group("Ids");
  table
      .add("ids", &config.ids,
           "How hashes become ids: numbered as they are first seen, or the hash modulo --max-ind-range.")
      .one_of({"dictionary", "hash"});
  table
      .add("max-ind-range", &config.max_ind_range,
           "Take hashes modulo this first, which bounds the tables; 0: as they are.")
      .range(0, 4294967296.0);
  table
      .add("frequency-threshold", &config.frequency_threshold,
           "Times a value must be seen to get an id of its own; rarer ones share id 1.")
      .range(0, kMaxCount);
  table
      .add("dictionaries-of", &config.dictionaries_of,
           "Take over the dictionaries of this folder, so that ids mean the same; unknown values get id 1.")
      .files("DIR")
      .absent("made from the input");
  table.group("Sampling");
  table
      .add("drop-negatives", &config.drop_negatives, "Share of the samples without a click that is left out.")
      .fraction();
  table.add("seed", &config.seed, "Decides which.");
  table.group("Machine");
  table
      .add("dictionary-memory", &config.dictionary_memory,
           "GiB for dictionaries; larger ones are made in several passes.")
      .range(0.0001, 1 << 20);
  table.add("threads", &config.threads, "Threads.").range(1, 1 << 16).absent("the cores of the host");
  return table;
}

const std::vector<CommandInfo>& commands() {
  static const std::vector<CommandInfo> kCommands = {
      {"pretrain",
       "train a transformer",
       "--num-layers N --hidden-size N ... [options]",
       {"trifold pretrain --data-path text.txt --num-layers 4 --hidden-size 128 --num-attention-heads 4 \\",
        "    --seq-length 64 --micro-batch-size 12 --train-iters 2000 --lr 1e-3 --save out",
        "trifold pretrain --config launch/configs/bert-large-phase1.cfg --data-path wiki.txt ...",
        "trifold pretrain --config small.ini --ranks 2 --global-batch-size 24",
        "mpirun -n 8 trifold pretrain --config small.ini"}},
      {"finetune",
       "tune a trained BERT for a task: classes of texts, or SQuAD's questions",
       "--task classify|squad --load DIR --train-data FILE ... [options]",
       {"trifold finetune --task classify --load bert --train-data train.tsv --valid-data dev.tsv \\",
        "    --micro-batch-size 32 --train-epochs 3 --lr 3e-5 --save tuned",
        "trifold finetune --task squad --load bert --train-data train-v2.0.json ...",
        "trifold finetune --task classify --load tuned --valid-data test.tsv --micro-batch-size 32 \\",
        "    --predictions out.jsonl    # evaluates only"}},
      {"generate",
       "sample text from a checkpoint",
       "--load DIR [options]",
       {"trifold generate --load out --prompt 'To be' --max-new-tokens 100",
        "trifold generate --load out --temperature 0.8 --top-k 40 --num-samples 3"}},
      {"evaluate",
       "measure the loss of a checkpoint on a data set",
       "--load DIR --data-path PATH [options]",
       {"trifold evaluate --load out --data-path text.txt --split 90,10,0 --part valid",
        "trifold evaluate --load out --data-path other.txt --split 1,0,0 --part train --ranks 2"}},
      {"inspect",
       "show what a checkpoint holds, verify it, compare two",
       "DIR [options]",
       {"trifold inspect out", "trifold inspect out --verify", "trifold inspect out --diff other"}},
      {"reshard",
       "rewrite a checkpoint for another mesh, number of files or type",
       "--load DIR --save DIR [options]",
       {"trifold reshard --load out --save out8 --tp 2 --pp 2 --dp 2 --zero-stage 1",
        "trifold reshard --load out --save small --files 1 --dtype bf16 --no-save-optim"}},
      {"convert",
       "turn a checkpoint into a Hugging Face model (GPT-2, Llama, BERT), and back",
       "--load DIR --save DIR [options]",
       {"trifold convert --load out --save gpt2-mine --dtype bf16    # then open it in transformers",
        "trifold convert --load gpt2 --save out    # config.json and model.safetensors; then train it "
        "further"}},
      {"bench",
       "measure training steps, matrix products, collectives and the parts of a plan",
       "[options]",
       {"trifold bench                 # GPT-2 124M, a training step and the matrix product rate",
        "trifold bench --what comm --ranks 2 --json comm.json",
        "trifold bench --what blocks --json costs.json && trifold plan --costs costs.json ..."}},
      {"plan",
       "show what a training run would do on every rank: stages, schedule, time, memory",
       "--num-layers N --hidden-size N ... [options]",
       {"trifold plan --config launch/configs/gpt-1t.cfg",
        "trifold plan --config launch/configs/gpt2-124m.cfg --ranks 4 --pp 4 --global-batch-size 32 \\",
        "    --schedule zb-h1 --svg step.svg"}},
      {"tokenize",
       "turn text or JSON lines into a .bin/.idx data set",
       "--input FILE --output-prefix PREFIX [options]",
       {"trifold tokenize --input text.txt --output-prefix text",
        "trifold tokenize --input web.jsonl --json-keys text --output-prefix web \\",
        "    --tokenizer-type sentencepiece --tokenizer-model sp.model"}},
      {"preprocess",
       "turn click logs into a data set of a recommender",
       "--input FILE ... --output DIR [options]",
       {"trifold preprocess --input train.txt --output clicks",
        "trifold preprocess --input day_0 day_1 day_2 --output clicks --frequency-threshold 3 \\",
        "    --max-ind-range 10000000 --drop-negatives 0.875",
        "trifold preprocess --input day_23 --output test --dictionaries-of clicks --max-ind-range 10000000"}},
      {"recommend",
       "train a recommender (DLRM) with its embedding tables spread over ranks",
       "--train-data PATH --table-rows N-N-... [options]",
       {"trifold recommend --train-data synthetic --table-rows 10000-2000-500-30 --valid-samples 50000 \\",
        "    --eval-interval 50 --ranks 2",
        "trifold recommend --config launch/configs/dlrm-kaggle.cfg --train-data train.txt",
        "mpirun -n 8 trifold recommend --config launch/configs/dlrm-small.cfg"}},
      {"plan-recommender",
       "show where a recommender's tables would be, what travels, and how long a step takes",
       "--table-rows N-N-... [options]",
       {"trifold plan-recommender --config launch/configs/dlrm-mlperf.cfg --ranks 16 --memory-limit 16",
        "trifold plan --config launch/configs/dlrm-kaggle.cfg     # the same: the file has --table-rows",
        "trifold plan-recommender --config launch/configs/dlrm-small.cfg --ranks 2 --measure-steps 50"}},
      {"completion",
       "print a script that completes these commands in bash",
       "bash",
       {"source <(trifold completion bash)"}}};
  return kCommands;
}

const CommandInfo& command_info(std::string_view name) {
  for (const CommandInfo& info : commands())
    if (info.name == name) return info;
  fail("there is no command '{}'", name);
}

}  // namespace trifold
