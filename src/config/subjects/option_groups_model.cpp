// Options of the model and its data.
#include "config/subjects/option_groups.h"

namespace trifold {

namespace {

void add_latent_attention(OptionTable& table, ModelConfig& model) {
  table.add("multi-latent-attention", &model.multi_latent_attention,
            "Compute the keys and values of all heads from one short latent vector per token, "
            "as DeepSeek-V2 and V3 do.");
  table.add("q-lora-rank", &model.q_lora_rank, "Latent attention: width of a latent vector for queries too.")
      .range(1, kMaxSize)
      .absent("queries have none");
  table
      .add("kv-lora-rank", &model.kv_lora_rank,
           "Latent attention: width of the latent vector of keys and values.")
      .range(1, kMaxSize);
  table
      .add("qk-head-dim", &model.qk_head_dim,
           "Latent attention: width of each head's queries and keys, without the part that rope rotates.")
      .range(1, kMaxSize);
  table
      .add("qk-pos-emb-head-dim", &model.qk_pos_emb_head_dim,
           "Latent attention: additional width that rope rotates; all heads share this part of the keys.")
      .range(2, kMaxSize);
  table.add("v-head-dim", &model.v_head_dim, "Latent attention: width of each head's values.")
      .range(1, kMaxSize);
}

// The options that turn a GPT-2 into a Llama.
void add_architecture(OptionTable& table, ModelConfig& model) {
  table.add("position-embedding-type", &model.position_embedding_type,
            "Position encoding: learned embeddings, rotary embeddings (rope), or none.");
  table.add("rotary-base", &model.rotary_base, "Base of the rotation angles of rope.").range(1, 1e12);
  table.add("rotary-percent", &model.rotary_percent, "Fraction of each head's channels that rope rotates.")
      .bounds = {0, 1, true, false};
  table.add("use-rope-scaling", &model.use_rope_scaling,
            "Scale the frequencies of rope for more than 8192 positions, as Llama 3.1 does.");
  table.add("rope-scaling-factor", &model.rope_scaling_factor, "Scaling factor of --use-rope-scaling.")
      .range(1, 1e6);
  table
      .add("rope-scaling-low-freq-factor", &model.rope_scaling_low_freq_factor,
           "--use-rope-scaling: channels that rotate less often than this within the original context are "
           "scaled by the full factor.")
      .bounds = {0, 1e6, true, false};
  table
      .add("rope-scaling-high-freq-factor", &model.rope_scaling_high_freq_factor,
           "--use-rope-scaling: channels that rotate more often than this within the original context keep "
           "their frequency.")
      .bounds = {0, 1e6, true, false};
  table
      .add("rope-scaling-original-positions", &model.rope_scaling_original_positions,
           "--use-rope-scaling: context length of the original training.")
      .range(1, kMaxSize);
  table
      .add("rotary-seq-len-interpolation-factor", &model.rotary_seq_len_interpolation_factor,
           "Divide the positions of rope by this factor (linear position interpolation).")
      .range(1, 1e6);
  table.add("rope-type", &model.rope_type, "rope as it is, or scaled to longer sequences with YaRN.");
  table.add("rotary-scaling-factor", &model.rotary_scaling_factor, "yarn: context extension factor.")
      .range(1, 1e6);
  table
      .add("original-max-position-embeddings", &model.original_max_position_embeddings,
           "yarn: context length of the original training.")
      .range(1, kMaxSize);
  table
      .add(
          "beta-fast", &model.beta_fast,
          "yarn: channels that rotate more often than this within the original context keep their frequency.")
      .bounds = {0, 1e6, true, false};
  table
      .add("beta-slow", &model.beta_slow,
           "yarn: channels that rotate less often than this within the original context are interpolated by "
           "the full factor.")
      .bounds = {0, 1e6, true, false};
  table.add("mscale", &model.mscale, "yarn: queries and keys are scaled by 1 + 0.1 x this x ln(factor).")
      .range(0, 1e3);
  table
      .add("mscale-all-dim", &model.mscale_all_dim,
           "yarn: the same coefficient for the divisor of that scale.")
      .range(0, 1e3);
  table
      .add("rotary-attention-factor", &model.rotary_attention_factor,
           "yarn: scale of queries and keys, instead of the one that follows from --mscale.")
      .absent("from --mscale and --mscale-all-dim")
      .bounds = {0, 1e3, true, false};
  table.add("rope-no-truncate", &model.rope_no_truncate,
            "yarn: do not round the bounds of --beta-fast and --beta-slow to whole channels.");
  table.add("group-query-attention", &model.group_query_attention,
            "Grouped-query attention: query heads share --num-query-groups key and value heads.");
  table
      .add("num-query-groups", &model.num_query_groups,
           "Key and value heads; must divide --num-attention-heads.")
      .range(1, kMaxSize);
  table.add("kv-channels", &model.kv_channels, "Width of a head.")
      .range(1, kMaxSize)
      .absent("--hidden-size / --num-attention-heads");
  table.add("qk-layernorm", &model.qk_layernorm,
            "Normalize queries and keys per head; with --multi-latent-attention, the latent vectors.");
  add_latent_attention(table, model);
  table.add("normalization", &model.normalization, "Normalization layer.");
  table.add("swiglu", &model.swiglu, "Gated feed-forward network, silu(gate) x up, instead of GELU.");
  table.add("gelu", &model.gelu,
            "Form of GELU: the tanh approximation, or exact with erf as in Hugging Face's BERT.");
  table.add("disable-bias-linear", &model.disable_bias_linear, "No biases in linear layers.");
  table.add("add-qkv-bias", &model.add_qkv_bias,
            "Biases of the query, key and value projections in spite of --disable-bias-linear, as in Qwen2.");
  table.add("add-attention-out-bias", &model.add_attention_out_bias,
            "Bias of the output projection of attention in spite of --disable-bias-linear.");
  table.add("add-mlp-bias", &model.add_mlp_bias,
            "Biases of the feed-forward networks in spite of --disable-bias-linear.");
}

constexpr int64_t kMostExpertGroups = 64;

void add_experts(OptionTable& table, ModelConfig& model) {
  table
      .add("num-experts", &model.num_experts,
           "Mixture of experts: feed-forward networks per block, "
           "of which a router selects --moe-router-topk for each token.")
      .range(1, 1 << 16)
      .absent("one network for all tokens");
  table
      .add("moe-layer-freq", &model.moe_layer_freq,
           "Layers with experts: every N-th from the first on, or a list of 0 and 1 for all layers, such as "
           "[0]*3+[1]*58; the others have one network of --ffn-hidden-size.")
      .takes("N|LIST");
  table.add("moe-router-topk", &model.moe_router_topk, "Experts per token.").range(1, 1 << 16);
  table.add("moe-ffn-hidden-size", &model.moe_ffn_hidden_size, "Inner width of each expert.")
      .range(1, kMaxSize)
      .absent("--ffn-hidden-size");
  table
      .add("moe-shared-expert-intermediate-size", &model.moe_shared_expert_intermediate_size,
           "Inner width of a shared expert, which processes every token.")
      .range(1, kMaxSize)
      .absent("none");
  table.add(
      "moe-shared-expert-gate", &model.moe_shared_expert_gate,
      "Scale the shared expert's output for a token by a logistic function of the token, as in Qwen2-MoE.");
  table.add("moe-router-score-function", &model.moe_router_score_function,
            "Weights of the selected experts: their softmax, or their sigmoids normalized to a sum of 1.");
  table.add(
      "moe-router-pre-softmax", &model.moe_router_pre_softmax,
      "Apply the softmax to all experts instead of the selected ones; the weights then sum to less than 1.");
  table
      .add("moe-router-topk-scaling-factor", &model.moe_router_topk_scaling_factor,
           "Factor of the weights of the selected experts.")
      .positive();
  table
      .add("moe-router-num-groups", &model.moe_router_num_groups,
           "Groups of experts: a token selects experts only in its --moe-router-group-topk best groups.")
      .range(1, kMostExpertGroups)
      .absent("one group");
  table
      .add("moe-router-group-topk", &model.moe_router_group_topk,
           "Groups per token: those with the largest sum of their --moe-router-topk / "
           "--moe-router-group-topk best scores.")
      .range(1, kMostExpertGroups)
      .absent("one group");
  table.add(
      "moe-router-enable-expert-bias", &model.moe_router_enable_expert_bias,
      "Balance the load without a loss: a bias per expert is added to its score, for the selection only.");
  table
      .add("moe-router-bias-update-rate", &model.moe_router_bias_update_rate,
           "After each step the bias of an expert rises by this if it had fewer tokens than the mean, "
           "and falls if it had more.")
      .range(0, 1);
  table.add(
      "moe-router-load-balancing-type", &model.moe_router_load_balancing_type,
      "Choices that the load-balancing loss counts: those of each sequence, of each micro-batch, "
      "or of the previous global batch. The first and the last depend on neither mesh nor micro-batch size.");
  table
      .add("moe-aux-loss-coeff", &model.moe_aux_loss_coeff,
           "Coefficient of the load-balancing loss; 0.01 is common.")
      .range(0, 1e6);
  table
      .add("moe-z-loss-coeff", &model.moe_z_loss_coeff,
           "Coefficient of the router z-loss, which penalizes large logits; 0.001 is common.")
      .range(0, 1e6);
  table
      .add("moe-input-jitter-eps", &model.moe_input_jitter_eps,
           "In training, multiply the router's input by random numbers "
           "between 1 - EPS and 1 + EPS; 0.01 is common.")
      .takes("EPS")
      .range(0, 1);
  table.add("moe-router-force-load-balancing", &model.moe_router_force_load_balancing,
            "For benchmarks: in training, random logits in place of the router's, "
            "so that all experts are loaded evenly.");
  table
      .add(
          "moe-expert-capacity-factor", &model.moe_expert_capacity_factor,
          "In training, an expert takes from each sequence at most this many times the mean number of tokens "
          "per expert; further choices are dropped.")
      .positive()
      .absent("no token is dropped");
  table.add("moe-token-drop-policy", &model.moe_token_drop_policy,
            "Tokens that a full expert keeps: those with the largest weights, or the first of the sequence.");
}

}  // namespace

void add_model(OptionTable& table, ModelConfig& model) {
  table.group("Model");
  table.add("model-type", &model.model_type,
            "gpt predicts the next token (a Llama with the corresponding options); bert predicts masked "
            "tokens and whether two sentences are consecutive.");
  table.add("num-layers", &model.num_layers, "Transformer blocks.").need().range(1, 1 << 20);
  table.add("hidden-size", &model.hidden_size, "Width of the model.").need().range(1, kMaxSize);
  table
      .add("num-attention-heads", &model.num_attention_heads,
           "Attention heads; must divide --hidden-size unless --kv-channels is given.")
      .need()
      .range(1, kMaxSize);
  table.add("ffn-hidden-size", &model.ffn_hidden_size, "Inner width of the feed-forward network.")
      .range(1, kMaxSize)
      .absent("4 x --hidden-size, 8/3 x with --swiglu");
  table.add("seq-length", &model.seq_length, "Tokens of a training sequence.").need().range(1, kMaxSize);
  table
      .add("max-position-embeddings", &model.max_position_embeddings,
           "Longest sequence that position embeddings cover.")
      .range(1, kMaxSize)
      .absent("--seq-length");
  add_architecture(table, model);
  add_experts(table, model);
  table.add("vocab-size", &model.vocab_size, "Tokens of the vocabulary, before padding.")
      .range(1, kMaxSize)
      .absent("the tokenizer's");
  table
      .add("make-vocab-size-divisible-by", &model.make_vocab_size_divisible_by,
           "The vocabulary is padded to a multiple of this times the tensor parallel size.")
      .range(1, kMaxSize)
      .of_execution();
  table.add("untie-embeddings-and-output-weights", &model.untie_embeddings_and_output_weights,
            "Give the output layer its own weight instead of sharing the token embedding's.");
  table.add("norm-epsilon", &model.norm_epsilon, "Added to the variance in normalization.").positive();
  table
      .add("latent-norm-epsilon", &model.latent_norm_epsilon,
           "The same for the latent vectors of --multi-latent-attention.")
      .positive()
      .absent("--norm-epsilon");
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
            "bert: train on masked tokens only; a sample is one piece of text, not a pair of sentences.");
}

Option& add_tokenizer_type(OptionTable& table, Field type) {
  return table.add("tokenizer-type", type, "Tokenizer.");
}

Option& add_tokenizer_model(OptionTable& table, Field model) {
  return table
      .add("tokenizer-model", model,
           "File of the SentencePiece model, or the tokenizer.json of Hugging Face.")
      .reads("FILE")
      .absent("none")
      .of_all_hosts();
}

Option& add_end_token(OptionTable& table, Field token) {
  return table.add("eod-token", token, "Text of the token that ends a document, such as <|endoftext|>.")
      .takes("TOKEN")
      .absent("eos_token or eos_token_id of the files beside the tokenizer's, or the usual one");
}

void add_bad_records(OptionTable& table, Field reaction, Field most) {
  table.add("on-bad-record", reaction,
            "Reaction to an unusable JSON line: stop, or report and skip the line.");
  table.add("max-bad-records", most, "--on-bad-record skip: end after more than this many unusable lines.")
      .range(0, kMaxCount);
}

void add_data(OptionTable& table, DataConfig& data) {
  table.group("Data");
  table
      .add("data-path", &data.data_path,
           "Prefix of a .bin/.idx pair, or text to stream: plain or JSON lines, optionally compressed (.gz, "
           ".zst, "
           ".xz or .bz2), or a folder of such files. Several paths are blended, with a weight before each "
           "path or before none. "
           "BERT reads plain text files.")
      .need()
      .reads("[WEIGHT] PATH ...")
      .of_host();
  table.add("split", &data.split, "Shares of training, validation and test.").takes("A,B,C");
  add_tokenizer_type(table, &data.tokenizer_type).absent("byte for text, none for .bin/.idx");
  table.add("json-key", &data.json_key, "Field of each JSON line that holds its text.").takes("KEY");
  add_bad_records(table, &data.on_bad_record, &data.max_bad_records);
  add_tokenizer_model(table, &data.tokenizer_model);
  add_end_token(table, &data.eod_token);
}

void add_documents(OptionTable& table, DataConfig& data) {
  table.add("eod-mask-loss", &data.eod_mask_loss,
            "Leave end-of-document tokens out of the loss; the routers of experts still count them.");
  table.add("reset-attention-mask", &data.reset_attention_mask,
            "Restrict attention to tokens of the same document.");
  table.add("reset-position-ids", &data.reset_position_ids,
            "Restart positions at 0 at the beginning of each document.");
}

void add_pairs(OptionTable& table, DataConfig& data) {
  table.add("mask-prob", &data.mask_prob, "bert: fraction of tokens to mask and predict.").bounds = {
      0, 1, true, false};
  table.add("short-seq-prob", &data.short_seq_prob, "bert: fraction of samples that are shortened.")
      .fraction();
  table.add("whole-word-masking", &data.whole_word_masking, "bert: mask all tokens of a word together.");
  table.add("split-sentences", &data.split_sentences,
            "bert: split lines into sentences after '.', '!' and '?'; otherwise each line is a sentence.");
}

void add_task(OptionTable& table, FinetuneConfig& config) {
  table.group("Task");
  table
      .add("task", &config.task,
           "classify predicts the class of a text or a pair of texts; squad extracts answers from a text.")
      .need();
  table
      .add("train-data", &config.train_data,
           "classify: a .tsv file whose header names the columns text, optionally text_b, and label, or JSON "
           "lines with these fields. squad: SQuAD's JSON, version 1.1 or 2.")
      .reads("FILE")
      .absent("a tuned model is only evaluated")
      .of_all_hosts();
  table.add("valid-data", &config.valid_data, "Evaluation data in the same format.")
      .reads("FILE")
      .absent("none")
      .of_all_hosts();
  table
      .add(
          "predictions", &config.predictions,
          "Write the model's predictions for --valid-data: JSON lines of labels, or SQuAD's JSON of answers.")
      .writes("FILE", {{"{\"label\":", "\"probabilities\":{"}, json_mark("finetune")})
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
           "squad: stride, in tokens, between windows over a text that exceeds --seq-length.")
      .range(1, kMaxSize);
  table
      .add("max-query-length", &config.max_query_length,
           "squad: longer questions are truncated to this many tokens.")
      .range(1, kMaxSize);
  table.add("max-answer-length", &config.max_answer_length, "squad: maximum length of an answer in tokens.")
      .range(1, kMaxSize);
  table.add(
      "null-score-diff-threshold", &config.null_score_diff_threshold,
      "squad version 2: predict no answer if its score exceeds that of the best answer by more than this.");
}

void add_tf32(OptionTable& table, PrecisionConfig& precision) {
  table.add(
      "tf32", &precision.tf32,
      "Use tensor cores for f32 matrix products, with operands rounded to a 10-bit mantissa; --device cuda.");
}

void add_precision(OptionTable& table, PrecisionConfig& precision) {
  table.group("Precision");
  table.add("bf16", &precision.bf16, "Weights and activations in bf16; f32 master weights.");
  table.add("fp16", &precision.fp16, "Weights and activations in fp16; f32 master weights and loss scaling.");
  table.add("fp8", &precision.fp8,
            "Matrix products of linear layers in 8 bits, E4M3 forward and E5M2 gradients; needs --bf16, "
            "--device cuda and a Hopper GPU.");
  add_tf32(table, precision);
  table.add("loss-scale", &precision.loss_scale, "Fixed loss scale, preferably a power of two.")
      .positive()
      .absent("1 for --bf16, dynamic for --fp16");
  table.add("initial-loss-scale", &precision.initial_loss_scale, "Initial dynamic loss scale; fp16.")
      .range(1, kMaxLossScale);
  table.add("min-loss-scale", &precision.min_loss_scale, "Smallest dynamic loss scale; fp16.")
      .range(1, kMaxLossScale);
  table
      .add("loss-scale-window", &precision.loss_scale_window,
           "Double the loss scale after this many steps without overflow; fp16.")
      .range(1, kMaxCount);
  table.add("hysteresis", &precision.hysteresis, "Halve the loss scale after this many overflows; fp16.")
      .range(1, kMaxCount);
  table.add("f64", &precision.f64, "Compute everything in double precision, for numerical checks.");
  table.add(
      "grad-reduce-in-bf16", &precision.grad_reduce_in_bf16,
      "Send gradients to other data-parallel ranks in bf16, which halves the traffic; sums are in f32.");
}

}  // namespace trifold
