#include "config/subjects/model.h"

#include "config/fields/pipeline_choice.h"
#include "config/options/bounds.h"
#include "config/subjects/attention.h"
#include "config/subjects/experts.h"
#include "config/subjects/scaling/width.h"

namespace trifold {

namespace {

// The options that turn a GPT-2 into a Llama, except its attention options.
void add_architecture(OptionTable& table, ModelConfig& model) {
  table.add("normalization", &model.normalization, "Normalization layer.");
  table.add("swiglu", &model.swiglu, "Gated feed-forward network, silu(gate) x up, instead of GELU.");
  table
      .add("geglu", &model.geglu,
           "Gated feed-forward network, gelu(gate) x up, in the form of --gelu (Gemma).")
      .excludes("swiglu", {}, "give one of them");
  table
      .add("quick-geglu", &model.quick_geglu,
           "Gated feed-forward network, gate x sigmoid(1.702 gate) x up (gpt-oss).")
      .excludes(When("swiglu").or_when("geglu"), {}, "give one of them");
  table
      .add("activation-func-clamp-value", &model.activation_func_clamp_value,
           "Bound gates from above by this, and what they multiply from both sides (gpt-oss: 7).")
      .takes("X")
      .absent("no bound")
      .only_with(When("swiglu").or_when("quick-geglu"))
      .bounds = {0, 1e6, true, false};
  table
      .add("glu-linear-offset", &model.glu_linear_offset,
           "Added to what the gates multiply, after it is bounded (gpt-oss: 1).")
      .range(-1e6, 1e6)
      .only_with(When("swiglu").or_when("quick-geglu"));
  table.add("relu", &model.relu, "max(x, 0) in feed-forward networks, instead of GELU (OPT).")
      .excludes(When("swiglu").or_when("geglu").or_when("quick-geglu"), {}, "give one of them");
  table.add("squared-relu", &model.squared_relu, "max(x, 0)^2 in feed-forward networks, instead of GELU.")
      .excludes(When("swiglu").or_when("geglu").or_when("quick-geglu").or_when("relu"), {},
                "give one of them");
  table
      .add("gelu", &model.gelu,
           "Form of GELU: the tanh approximation, or exact with erf as in Hugging Face's BERT.")
      .no_effect_with(When("swiglu").or_when("quick-geglu").or_when("relu").or_when("squared-relu"));
  table.add("disable-bias-linear", &model.disable_bias_linear, "No biases in linear layers.");
  table
      .add("add-qkv-bias", &model.add_qkv_bias,
           "Biases of the query, key and value projections in spite of --disable-bias-linear, as in Qwen2.")
      .only_with("disable-bias-linear", "because all linear layers have biases")
      .excludes("multi-latent-attention", "because its projections have no biases", "leave it out");
  table
      .add("add-attention-out-bias", &model.add_attention_out_bias,
           "Bias of the output projection of attention in spite of --disable-bias-linear.")
      .only_with("disable-bias-linear", "because all linear layers have biases")
      .excludes("multi-latent-attention", "because its projections have no biases", "leave it out");
  table
      .add(
          "add-mlp-bias", &model.add_mlp_bias,
          "Biases of the feed-forward networks, or of routers and experts, in spite of --disable-bias-linear.")
      .only_with("disable-bias-linear", "because all linear layers have biases");
  table
      .add("add-head-bias", &model.add_head_bias,
           "bert: bias of the dense layer before the output layer in spite of --disable-bias-linear.")
      .only_with("disable-bias-linear", "because all linear layers have biases");
  table.add("disable-bias-norm", &model.disable_bias_norm, "No biases in layer norms (ModernBERT).")
      .no_effect_with({"normalization", "RMSNorm"}, "which has no biases");
}

// The shape of a layer around its two parts, attention and the feed-forward network, and the factors of a model's ends.
void add_residual_stream(OptionTable& table, ModelConfig& model) {
  table
      .add(
          "norm-position", &model.norm_position,
          "Norms of a layer's two parts: of their inputs; of their outputs, before these are added to the residual "
          "stream, as in OLMo 2; or of both, as in Gemma 2.")
      .only_with("pre-norm", "because its layers normalize sums")
      .provided({"model-type", "bert"});
  table.add(
      "pre-norm", &model.pre_norm,
      "bert: layers have the norms of --norm-position and the model has a final norm, as in a GPT, instead of "
      "norms of the sums to which a layer's parts are added (ModernBERT).");
  table
      .add(
          "no-first-norm", &model.no_first_norm,
          "The attention of the first layer reads the embedding without a norm of its own (ModernBERT, whose "
          "embedding has one).")
      .excludes({"norm-position", "output"}, "because the parts' inputs have no norms",
                "leave one of them out")
      .excludes("parallel-residual", "because its parts have the same input", "leave one of them out")
      .excludes("mtp-num-layers", "because modules have layers like the last one", "leave one of them out")
      .only_with("pre-norm", "because its layers normalize sums")
      .provided({"model-type", "bert"});
  table
      .add(
          "parallel-residual", &model.parallel_residual,
          "Attention and feed-forward network both read the layer's input: each with a norm, as in GPT-NeoX, or "
          "with one norm, as in Phi-2.")
      .excludes({"norm-position", "output"}, "because the parts' inputs have no norms",
                "leave one of them out")
      .only_with("pre-norm", "because its layers normalize sums")
      .provided({"model-type", "bert"});
  constexpr Range kFactor{0, 1e6, true, false};
  table
      .add("embedding-multiplier", &model.embedding_multiplier,
           "Multiply the output of the embedding by this (Gemma, Granite).")
      .bounds = kFactor;
  table
      .add("residual-multiplier", &model.residual_multiplier,
           "Multiply what attention and feed-forward networks add to the residual stream by this (Granite).")
      .bounds = kFactor;
  table.add("logits-scaling", &model.logits_scaling, "Divide logits by this (Granite).").bounds = kFactor;
  table
      .add("final-logit-softcapping", &model.final_logit_softcapping,
           "Bound logits smoothly: c x tanh(logit / c) (Gemma 2).")
      .takes("C")
      .absent("no bound")
      .bounds = kFactor;
}

// Modules that predict further tokens.
void add_prediction(OptionTable& table, ModelConfig& model) {
  table
      .add(
          "mtp-num-layers", &model.mtp_num_layers,
          "Train this many modules after the last layer, each of which predicts one token further (multi-token "
          "prediction, as in DeepSeek-V3). Only their losses are added: evaluation and generation leave them out.")
      .range(0, kMostPredictionModules)
      .excludes({"position-embedding-type", "learned_absolute"}, "because a module has no positions to add",
                "give --position-embedding-type rope or none")
      .excludes({"pipeline-vocab-parts", AtLeast{2}}, "because modules share the output layer",
                "leave it out")
      .excludes("moe-use-upcycling", "because a model without experts has no such modules", "leave it out");
  table
      .add("mtp-loss-scaling-factor", &model.mtp_loss_scaling_factor,
           "Weight of the mean loss of the modules of --mtp-num-layers.")
      .range(0, 1e6)
      .only_with("mtp-num-layers");
}

// The sizes of a model in a file are read from it.
void make_sizes_optional(OptionTable& table) {
  for (const char* name : {"num-layers", "hidden-size", "num-attention-heads", "seq-length"})
    table.change(name).optional().range(0, kMaxSize);
}

}  // namespace

void add_model(OptionTable& table, ModelConfig& model) {
  table.group("Model");
  table
      .add("model-type", &model.model_type,
           "gpt predicts the next token (a Llama with the corresponding options); bert predicts masked "
           "tokens and whether two sentences are consecutive; graph is the model of a file (--model).")
      .needs("model")
      .only_for("graph");
  table
      .add(
          "model", &model.model,
          "Train the model in this file, which torch.export.save wrote (docs/own_models.md). Its first output is the "
          "loss. Tensor, context and expert parallelism are not possible.")
      .reads("FILE.pt2")
      .of_host();
  table
      .add(
          "freeze", &model.freeze,
          "Parameters of --model that are not trained, by name: patterns with * for any characters, ? for one, and [01] "
          "for one of several. Only for models from files.")
      .takes("PATTERN ...")
      .needs("model");
  table.add("num-layers", &model.num_layers, "Transformer blocks.").need().range(1, 1 << 20);
  table.add("hidden-size", &model.hidden_size, "Width of the model.")
      .need()
      .range(1, kMaxSize)
      .compares(Relation::MultipleOf, "num-attention-heads")
      .unless(When("kv-channels").or_when("multi-latent-attention").or_when("model"));
  table
      .add("num-attention-heads", &model.num_attention_heads,
           "Attention heads; must divide --hidden-size unless --kv-channels is given.")
      .need()
      .range(1, kMaxSize);
  table
      .add("embedding-size", &model.embedding_size,
           "bert: width of the embedding, which a dense layer projects to --hidden-size, "
           "and of the output layer (ELECTRA).")
      .range(1, kMaxSize)
      .absent("--hidden-size");
  table.add("ffn-hidden-size", &model.ffn_hidden_size, "Inner width of the feed-forward network.")
      .range(1, kMaxSize)
      .absent("4 x --hidden-size, 8/3 x with a gate");
  table.add("seq-length", &model.seq_length, "Tokens of a training sequence.")
      .need()
      .range(1, kMaxSize)
      .compares(Relation::AtMost, "max-position-embeddings");
  table
      .add("max-position-embeddings", &model.max_position_embeddings,
           "Longest sequence that position embeddings cover.")
      .range(1, kMaxSize)
      .absent("--seq-length");
  add_attention(table, model);
  add_architecture(table, model);
  add_residual_stream(table, model);
  add_experts(table, model);
  add_prediction(table, model);
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
  table.add("apply-layernorm-1p", &model.apply_layernorm_1p,
            "Store the gains of norms without 1, so that they are 0 at first, as in Gemma.");
  table.add("norm-epsilon", &model.norm_epsilon, "Added to the variance in normalization.").positive();
  table
      .add("latent-norm-epsilon", &model.latent_norm_epsilon,
           "The same for the latent vectors of --multi-latent-attention.")
      .positive()
      .absent("--norm-epsilon")
      .only_with("multi-latent-attention")
      .only_with("qk-layernorm");
  table.add("init-method-std", &model.init_method_std, "Standard deviation of the initial weights.")
      .positive();
  add_width(table, model);
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
  table
      .add(
          "num-tokentypes", &model.num_tokentypes,
          "bert: types of tokens with an embedding. 2: the sentences of a pair differ; 1: all tokens are of one "
          "type, as in RoBERTa; 0: no such embedding, as in DistilBERT.")
      .range(0, 2);
  if (model.model) make_sizes_optional(table);
}

void check_model(const ModelConfig& model, Problems& problems) {
  check_experts(model, problems);
  check_attention(model, problems);
  if (problems.sound({"seq-length", "mtp-num-layers"}) && model.mtp_num_layers > 0 &&
      model.mtp_num_layers >= model.seq_length)
    problems.about("mtp-num-layers", "seq-length")
        .wrong("--mtp-num-layers {} leaves no token of --seq-length {} to its last module",
               model.mtp_num_layers, model.seq_length)
        .right("give at most {} modules, or longer samples", model.seq_length - 1);
}

void check_task_head(const PretrainConfig& config, Problems& problems) {
  const bool counts_samples = has_task_head(config.model) || config.model.pair_loss;
  if (!counts_samples || !problems.sound({"schedule"})) return;
  const std::optional<Schedule> schedule = chosen_schedule(config.pipeline);
  if (schedule && is_async(*schedule))
    problems.about("schedule")
        .wrong("--schedule {} does not train a task", schedule_name(*schedule))
        .right("give a synchronous schedule, such as 1f1b");
}

}  // namespace trifold
