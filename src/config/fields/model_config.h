// The options of a language model. Names and defaults are Megatron-LM's where it has the option; see config/fields/config.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/fields/choices.h"
#include "config/fields/values.h"

namespace trifold {

// Low-rank adapters of linear layers (tensor_parallel/low_rank.h). With a rank, all other weights are frozen.
struct AdapterConfig {
  std::optional<int64_t> lora_rank;  // absent: no adapters, everything is trained
  std::optional<double> lora_alpha;  // stays unset; the rank, see adapter_scale
  double lora_dropout = 0;
  std::vector<std::string> lora_targets;  // layers, by name or pattern (config/fields/adapter_targets.h)
  LoraScaling lora_scaling = LoraScaling::Standard;
  LoraInit lora_init = LoraInit::Kaiming;
  bool dora = false;  // each output has a trained magnitude (Liu et al., "DoRA", arXiv 2402.09353)
  BaseWeights quantize_base = BaseWeights::AsRun;
};

// The factor of an adapter's product. May be called only with a rank.
double adapter_scale(const AdapterConfig& adapters);

// A loss of pairs of samples, an answer that is preferred to another (nn/samples/pair_loss.h).
struct PairLossConfig {
  PairLossKind loss = PairLossKind::Sigmoid;
  double beta = 0.1;
  double label_smoothing = 0;
};

struct ModelConfig {
  ModelType model_type = ModelType::Gpt;
  std::optional<std::string>
      model;  // a file with the model as a graph of operations; the fields below follow
  // Checksum of that file, set when it is read and stored in checkpoints, never by an option.
  std::optional<std::string> model_digest;
  // Patterns of its parameters that are not trained; their names, in order, once the file is read.
  std::vector<std::string> freeze;
  int64_t num_layers = 0;                  // required
  int64_t hidden_size = 0;                 // required
  int64_t num_attention_heads = 0;         // required
  std::optional<int64_t> embedding_size;   // stays unset; see embedding_width
  std::optional<int64_t> ffn_hidden_size;  // stays unset until a run is resolved; see inner_width
  std::optional<int64_t> kv_channels;      // stays unset; see head_width
  bool group_query_attention = false;      // num_query_groups key and value heads instead of one per head
  int64_t num_query_groups = 1;
  bool qk_layernorm = false;
  bool qk_layernorm_across_heads = false;
  bool qk_layernorm_after_rope = false;
  // Attention of some layers, or of all, sees only a window of positions (`left` and `right` of Attention, ops/ops.h).
  std::optional<WindowSize> window_size;
  std::optional<std::string> window_attn_skip_freq;  // which layers have a window; see layer_kinds
  SoftmaxType softmax_type = SoftmaxType::Vanilla;
  std::optional<double> attn_logit_softcapping;
  std::optional<double> softmax_scale;  // stays unset; 1 / sqrt of the width of keys
  // Keys and values from a latent vector (tensor_parallel/latent_projections.h), and queries too if q_lora_rank is set.
  bool multi_latent_attention = false;
  std::optional<int64_t> q_lora_rank;
  int64_t kv_lora_rank = 32;
  int64_t qk_head_dim = 128;         // width of a head's queries and keys without the rotated part
  int64_t qk_pos_emb_head_dim = 64;  // width of the rotated part
  int64_t v_head_dim = 128;
  int64_t seq_length = 0;                          // required
  std::optional<int64_t> max_position_embeddings;  // seq_length
  PositionEmbedding position_embedding_type = PositionEmbedding::LearnedAbsolute;
  int64_t position_embedding_offset =
      0;  // rows of the table of learned positions before the first position's
  double rotary_base = 10000;
  double rotary_percent = 1.0;
  // Scaling of RoPE beyond the trained positions (models/rotary_frequencies.h), by at most one of four rules: Llama
  // 3.1's, with four values of its own, ...
  bool use_rope_scaling = false;
  double rope_scaling_factor = 8.0;
  double rope_scaling_low_freq_factor = 1, rope_scaling_high_freq_factor = 4;
  int64_t rope_scaling_original_positions = 8192;
  double rotary_seq_len_interpolation_factor = 1;  // ... one factor for all pairs, ...
  RopeType rope_type = RopeType::Rope;             // ... YaRN, or LongRoPE.
  double rotary_scaling_factor = 1;                // this and the next: YaRN and LongRoPE
  int64_t original_max_position_embeddings = 4096;
  std::optional<double> rotary_attention_factor;  // stays unset; from the factor, for YaRN also from mscale
  // LongRoPE: a factor for each rotated pair, for sequences up to the original positions and for longer ones.
  std::vector<RopeFactor> rope_short_factor, rope_long_factor;
  double beta_fast = 32, beta_slow = 1;  // this and all below: YaRN
  double mscale = 1, mscale_all_dim = 0;
  bool rope_no_truncate = false;
  std::optional<std::string> no_rope_freq;   // which layers rotate nothing; see layer_kinds
  std::optional<double> window_rotary_base;  // base of RoPE, without scaling, in layers with a window
  std::optional<int64_t> vocab_size;         // the tokenizer's
  int64_t make_vocab_size_divisible_by = 128;
  bool untie_embeddings_and_output_weights = false;
  Normalization normalization = Normalization::LayerNorm;
  double norm_epsilon = 1e-5;
  bool apply_layernorm_1p = false;  // gains of norms are stored without 1
  bool disable_bias_norm = false;
  // BERT: norms where norm_position says, and a final norm, instead of norms of sums.
  bool pre_norm = false;
  bool no_first_norm = false;  // the attention of the first layer has no norm of its input
  NormPosition norm_position = NormPosition::Input;
  ParallelResidual parallel_residual = ParallelResidual::None;
  // Factors of the embedding and of the outputs of each layer's two parts; the divisor of logits, and their bound.
  double embedding_multiplier = 1, residual_multiplier = 1, logits_scaling = 1;
  std::optional<double> final_logit_softcapping;
  std::optional<double> latent_norm_epsilon;  // stays unset; norm_epsilon
  bool swiglu = false;
  bool geglu = false, quick_geglu = false;  // gates too: GELU, and x sigmoid(1.702 x)
  std::optional<double> activation_func_clamp_value;
  double glu_linear_offset = 0;
  bool squared_relu = false, relu = false;
  GeluKind gelu = GeluKind::Tanh;
  bool disable_bias_linear = false;
  // Biases that remain despite disable_bias_linear: query, key and value projections; attention's output; feed-forward
  // networks; the dense layer of a BERT's head.
  bool add_qkv_bias = false;
  bool add_attention_out_bias = false;
  bool add_mlp_bias = false;
  bool add_head_bias = false;
  double init_method_std = 0.02;
  // The width of the model, and of its heads, for which rates and initial values were tuned; these are transferred to
  // this model's width (models/width_rules.h). Both stay unset; see without_base_width.
  std::optional<int64_t> mup_base_hidden_size, mup_base_head_dim;
  std::optional<int64_t> num_experts;          // a mixture of experts replaces every feed-forward network
  std::optional<int64_t> moe_ffn_hidden_size;  // stays unset; see expert_width
  std::optional<int64_t> moe_shared_expert_intermediate_size;  // width of an expert that all tokens use
  bool moe_shared_expert_gate = false;  // its output is scaled by a logistic function of the token
  std::string moe_layer_freq = "1";     // which layers have experts; see expert_layers
  int64_t moe_router_topk = 2;
  RouterScore moe_router_score_function = RouterScore::Softmax;
  bool moe_router_pre_softmax = false;
  double moe_router_topk_scaling_factor = 1;
  std::optional<int64_t> moe_router_num_groups;  // a token uses only the best moe_router_group_topk groups
  std::optional<int64_t> moe_router_group_topk;
  bool moe_router_enable_expert_bias = false;  // added to scores for choosing
  double moe_router_bias_update_rate = 1e-3;
  RouterBalance moe_router_load_balancing_type = RouterBalance::SequenceAuxLoss;
  double moe_aux_loss_coeff = 0, moe_z_loss_coeff = 0;
  double moe_input_jitter_eps = 0;               // jitter of the router's input in training; 0: none
  bool moe_router_force_load_balancing = false;  // random choices in training, for benchmarks
  // In training, the most tokens of an expert, as a multiple of the mean; absent: no token is dropped.
  std::optional<double> moe_expert_capacity_factor;
  KeptChoices moe_token_drop_policy = KeptChoices::LargestGates;
  // Modules that predict tokens after the next one (models/prediction_module.h), and the weight of their mean loss.
  int64_t mtp_num_layers = 0;
  double mtp_loss_scaling_factor = 0.1;
  double hidden_dropout = 0.0;     // not Megatron-LM's 0.1, which surprises users
  double attention_dropout = 0.0;  // likewise
  bool bert_no_binary_head = false;
  int64_t num_tokentypes = 2;                  // 1: all tokens are of one type; 0: no embedding of types
  HeadKind bert_head = HeadKind::Pretraining;  // set by a checkpoint, never by an option
  std::vector<std::string> class_names;        // for HeadKind::Classes
  AdapterConfig adapters;
  // Set by a run that trains the model on pairs, never by an option, and not stored; absent: the loss is of tokens.
  std::optional<PairLossConfig> pair_loss;
};

constexpr int64_t kMostPredictionModules = 4;

// Whether feed-forward networks have gates.
inline bool has_gate(const ModelConfig& config) {
  return config.swiglu || config.geglu || config.quick_geglu;
}

// What norms add to their gains (NormForm::gain_offset).
inline double gain_offset(const ModelConfig& config) { return config.apply_layernorm_1p ? 1 : 0; }

// The width of a BERT's embedding, which a dense layer widens if it is not that of the model.
inline int64_t embedding_width(const ModelConfig& config) {
  return config.embedding_size.value_or(config.hidden_size);
}

inline bool has_task_head(const ModelConfig& config) { return config.bert_head != HeadKind::Pretraining; }

// Derived sizes. head_width: an attention head as it is computed. key_width, value_width, rotated_width: its keys, its
// values, and the part that RoPE rotates, which differ in latent attention. key_heads: key and value heads, equal to
// the attention heads unless query groups share them. inner_width: the feed-forward network (--ffn-hidden-size, or
// derived from hidden_size). expert_width: an expert (--moe-ffn-hidden-size, or inner_width).
int64_t head_width(const ModelConfig& config);
int64_t key_width(const ModelConfig& config);
int64_t value_width(const ModelConfig& config);
int64_t rotated_width(const ModelConfig& config);
int64_t key_heads(const ModelConfig& config);
int64_t inner_width(const ModelConfig& config);
int64_t expert_width(const ModelConfig& config);
// width_ratio: the width relative to --mup-base-hidden-size; 1 without it.
double width_ratio(const ModelConfig& config);
// The model that computes the same from the same weights without --mup-base-hidden-size and --mup-base-head-dim: its
// logits_scaling and softmax_scale contain what these do.
ModelConfig without_base_width(ModelConfig config);
// expert_layers: for each layer, whether its feed-forward part is a mixture of experts (--moe-layer-freq). BadInput if
// the pattern does not fit the number of layers. count_expert_layers: the number of layers with experts.
std::vector<bool> expert_layers(const ModelConfig& config);
int64_t count_expert_layers(const ModelConfig& config);
// The number of modules with experts: their layers are like the last one.
int64_t count_expert_modules(const ModelConfig& config);

}  // namespace trifold
