// What is trained, on what.
#include "config/option_groups.h"

namespace trifold {

namespace {

// What makes a Llama of a GPT.
void add_architecture(OptionTable& table, ModelConfig& model) {
  table.add("position-embedding-type", &model.position_embedding_type,
            "How the model knows positions: learned vectors, queries and keys turned by angles, not at all.");
  table.add("rotary-base", &model.rotary_base, "Base of the angles of rope.").range(1, 1e12);
  table.add("rotary-percent", &model.rotary_percent, "Fraction of each head that rope turns.").bounds = {
      0, 1, true, false};
  table.add("use-rope-scaling", &model.use_rope_scaling,
            "Stretch rope beyond 8192 positions as Llama 3.1 does.");
  table.add("rope-scaling-factor", &model.rope_scaling_factor, "How far --use-rope-scaling stretches.")
      .range(1, 1e6);
  table
      .add("rotary-seq-len-interpolation-factor", &model.rotary_seq_len_interpolation_factor,
           "Divide the positions of rope by this, so that it reaches as many times further.")
      .range(1, 1e6);
  table.add("rope-type", &model.rope_type, "rope, or rope that is stretched as YaRN does.");
  table.add("rotary-scaling-factor", &model.rotary_scaling_factor, "yarn: how far it stretches.")
      .range(1, 1e6);
  table
      .add("original-max-position-embeddings", &model.original_max_position_embeddings,
           "yarn: positions that the model was trained with before.")
      .range(1, kMaxSize);
  table
      .add("beta-fast", &model.beta_fast,
           "yarn: pairs that turn more often than this in the original positions stay as they are.")
      .bounds = {0, 1e6, true, false};
  table
      .add("beta-slow", &model.beta_slow,
           "yarn: pairs that turn less often than this are stretched by the whole factor.")
      .bounds = {0, 1e6, true, false};
  table.add("mscale", &model.mscale, "yarn: how much larger queries and keys become, times 0.1 ln(factor).")
      .range(0, 1e3);
  table.add("mscale-all-dim", &model.mscale_all_dim, "yarn: the same of what that is divided by.")
      .range(0, 1e3);
  table.add("group-query-attention", &model.group_query_attention,
            "Several query heads share a key and value head: --num-query-groups of these.");
  table.add("num-query-groups", &model.num_query_groups, "Key and value heads; they divide the heads.")
      .range(1, kMaxSize);
  table.add("kv-channels", &model.kv_channels, "Width of a head.")
      .range(1, kMaxSize)
      .absent("--hidden-size / --num-attention-heads");
  table.add("qk-layernorm", &model.qk_layernorm, "Normalize queries and keys, head by head.");
  table.add("normalization", &model.normalization, "How activations are normalized.");
  table.add("swiglu", &model.swiglu, "Gated feed-forward network, silu(gate) x up, instead of GELU.");
  table.add(
      "gelu", &model.gelu,
      "Form of GELU: the usual approximation with tanh, or erf itself, as Hugging Face's BERTs have it.");
  table.add("disable-bias-linear", &model.disable_bias_linear, "No biases in linear layers.");
}

}  // namespace

void add_model(OptionTable& table, ModelConfig& model) {
  table.group("Model");
  table.add("model-type", &model.model_type,
            "gpt guesses the next token (a Llama with the options for it); bert guesses masked tokens and "
            "whether sentences follow each other.");
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
  table
      .add("max-position-embeddings", &model.max_position_embeddings,
           "Positions that the model distinguishes.")
      .range(1, kMaxSize)
      .absent("--seq-length");
  add_architecture(table, model);
  table.add("vocab-size", &model.vocab_size, "Tokens of the vocabulary, before padding.")
      .range(1, kMaxSize)
      .absent("the tokenizer's");
  table
      .add("make-vocab-size-divisible-by", &model.make_vocab_size_divisible_by,
           "The vocabulary is padded to a multiple of this times the tensor parallel size.")
      .range(1, kMaxSize)
      .of_execution();
  table.add("untie-embeddings-and-output-weights", &model.untie_embeddings_and_output_weights,
            "Give the output head a weight of its own instead of the token embedding's.");
  table.add("norm-epsilon", &model.norm_epsilon, "Added to the variance in normalization.").positive();
  table.add("init-method-std", &model.init_method_std, "Standard deviation of the initial weights.")
      .positive();
  table
      .add("hidden-dropout", &model.hidden_dropout,
           "Dropout after attention, feed-forward and embedding. Megatron-LM's default is 0.1.")
      .fraction();
  table
      .add("attention-dropout", &model.attention_dropout,
           "Dropout of attention probabilities. Megatron-LM's default is 0.1.")
      .fraction();
  table.add("bert-no-binary-head", &model.bert_no_binary_head,
            "bert: masked tokens only; samples are one piece of text, not pairs of sentences.");
}

Option& add_tokenizer_type(OptionTable& table, Field type) {
  return table.add("tokenizer-type", type, "How text becomes tokens.");
}

Option& add_tokenizer_model(OptionTable& table, Field model) {
  return table
      .add("tokenizer-model", model,
           "File of the SentencePiece model, or the tokenizer.json of Hugging Face.")
      .files("FILE")
      .absent("none")
      .of_host();
}

void add_data(OptionTable& table, DataConfig& data) {
  table.group("Data");
  table
      .add("data-path", &data.data_path,
           "Prefix of a .bin/.idx pair, or text: plain or JSON lines, also .gz or .zst, or a folder of it, "
           "streamed; several make a blend, with a weight before each or none. BERT reads files of plain "
           "text.")
      .need()
      .files("[WEIGHT] PATH ...")
      .of_host();
  table.add("split", &data.split, "Shares of training, validation and test.").takes("A,B,C");
  add_tokenizer_type(table, &data.tokenizer_type).absent("byte for text, none for .bin/.idx");
  table.add("json-key", &data.json_key, "Field of a JSON line that holds its text.").takes("KEY");
  table.add("on-bad-record", &data.on_bad_record,
            "What a line of JSON that cannot be used means: stop the run, or report and skip it.");
  table
      .add("max-bad-records", &data.max_bad_records,
           "--on-bad-record skip: end when there are more than so many of them.")
      .range(0, kMaxCount);
  add_tokenizer_model(table, &data.tokenizer_model);
}

void add_documents(OptionTable& table, DataConfig& data) {
  table.add("eod-mask-loss", &data.eod_mask_loss, "Leave end-of-document tokens out of the loss.");
  table.add("reset-attention-mask", &data.reset_attention_mask,
            "Documents in a sequence do not see each other: attention begins at each one's first token.");
  table.add("reset-position-ids", &data.reset_position_ids,
            "Count positions from 0 in every document of a sequence.");
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

void add_task(OptionTable& table, FinetuneConfig& config) {
  table.group("Task");
  table
      .add("task", &config.task,
           "classify predicts the class of a text or a pair of texts; squad finds answers in a text.")
      .need();
  table
      .add("train-data", &config.train_data,
           "classify: a .tsv file whose first line names its columns, text, perhaps text_b, and label, or "
           "JSON "
           "lines with these fields. squad: SQuAD's JSON, version 1.1 or 2.")
      .files("FILE")
      .absent("a tuned model is only evaluated")
      .of_host();
  table.add("valid-data", &config.valid_data, "The same, to evaluate with.")
      .files("FILE")
      .absent("none")
      .of_host();
  table
      .add("predictions", &config.predictions,
           "Write what the model says of --valid-data: JSON lines of labels, or SQuAD's JSON of answers.")
      .files("FILE")
      .absent("nowhere")
      .of_host();
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

void add_tf32(OptionTable& table, PrecisionConfig& precision) {
  table.add("tf32", &precision.tf32,
            "Round the factors of f32 matrix products to 10 bits of mantissa and use tensor cores; --device "
            "cuda.");
}

void add_precision(OptionTable& table, PrecisionConfig& precision) {
  table.group("Precision");
  table.add("bf16", &precision.bf16, "Weights and activations in bf16; f32 master weights.");
  table.add("fp16", &precision.fp16, "Weights and activations in fp16; f32 master weights, a scaled loss.");
  table.add("fp8", &precision.fp8,
            "Products of linear layers in 8 bits, E4M3 forward and E5M2 gradients; --bf16, --device cuda, "
            "Hopper.");
  add_tf32(table, precision);
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

}  // namespace trifold
