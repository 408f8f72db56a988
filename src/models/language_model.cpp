#include "models/language_model.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "config/fields/layer_kinds.h"
#include "config/subjects/model_family.h"
#include "models/gpt.h"
#include "models/language_family.h"
#include "models/rotary_frequencies.h"
#include "models/width_rules.h"
#include "nn/recompute.h"

namespace trifold {

namespace {

ExpertsShape experts_of(const ModelConfig& config) {
  const bool sigmoid = config.moe_router_score_function == RouterScore::Sigmoid;
  return {*config.num_experts,
          {config.moe_router_topk,
           sigmoid                         ? RouterGate::Sigmoid
           : config.moe_router_pre_softmax ? RouterGate::All
                                           : RouterGate::Chosen,
           config.moe_router_topk_scaling_factor, config.moe_router_num_groups.value_or(1),
           config.moe_router_group_topk.value_or(1)},
          {config.moe_aux_loss_coeff, config.moe_z_loss_coeff},
          0,
          config.moe_router_enable_expert_bias,
          {config.moe_expert_capacity_factor.value_or(0), config.moe_token_drop_policy},
          config.moe_router_load_balancing_type,
          config.moe_input_jitter_eps,
          config.moe_router_force_load_balancing};
}

// The threads that compute attention on a rank: a device computes all heads at once.
int attention_threads(const MeshConfig& layout) {
  return layout.device == ComputeDevice::Cuda ? 1 : layout.threads_per_rank.value_or(1);
}

PartOrder part_order(ParallelResidual choice) {
  if (choice == ParallelResidual::None) return PartOrder::OneAfterAnother;
  return choice == ParallelResidual::TwoNorms ? PartOrder::Parallel : PartOrder::ParallelWithOneNorm;
}

TransformerShape shape_of(const ModelConfig& config, const MeshConfig& layout) {
  TransformerShape shape;
  shape.width = config.hidden_size;
  shape.heads = config.num_attention_heads;
  shape.kv_heads = key_heads(config);
  shape.head_dim = head_width(config);
  if (config.multi_latent_attention)
    shape.latent = {
        config.q_lora_rank.value_or(0), config.kv_lora_rank,       config.qk_head_dim, config.v_head_dim,
        rotary_key_scale(config),       config.latent_norm_epsilon};
  shape.ffn = config.num_experts ? expert_width(config) : *config.ffn_hidden_size;
  if (config.num_experts) {
    shape.experts = experts_of(config);
    shape.experts.buffer_factor = layout.moe_buffer_factor.value_or(0);
    shape.experts.dispatch = layout.moe_token_dispatcher_type;
  }
  shape.shared_ffn = config.moe_shared_expert_intermediate_size.value_or(0);
  shape.shared_gate = config.moe_shared_expert_gate;
  shape.mlp_tiles = layout.tiled_mlp;
  shape.norm = config.normalization;
  shape.norm_bias = !config.disable_bias_norm;
  shape.activation = activation_form(config);
  shape.bias = !config.disable_bias_linear;
  shape.query_key_value_bias = config.add_qkv_bias;
  shape.attention_out_bias = config.add_attention_out_bias;
  shape.mlp_bias = config.add_mlp_bias;
  shape.head_norm = config.qk_layernorm;
  shape.heads_as_one = config.qk_layernorm_across_heads;
  shape.norm_after_rope = config.qk_layernorm_after_rope;
  if (config.position_embedding_type == PositionEmbedding::Rope) {
    shape.rotary_frequencies = rotary_frequencies(config);
    shape.rotary_scale = rotary_scale(config);
  }
  // Scores are scaled by the width of keys without the zeros that pad them to the width of a head.
  const auto head = static_cast<double>(head_width(config));
  const std::optional<double> scale = without_base_width(config).softmax_scale;
  shape.scores.scale =
      rotary_score_scale(config) *
      (scale ? *scale * std::sqrt(head) : std::sqrt(head / static_cast<double>(key_width(config))));
  if (config.window_size) {
    // A side of all positions that a sequence can have is no limit.
    const int64_t positions = config.max_position_embeddings.value_or(config.seq_length);
    const auto limit = [&](int64_t side) { return side + 1 >= positions ? -1 : side; };
    shape.scores.left = limit(config.window_size->left);
    shape.scores.right = family_of_model(config).causal ? -1 : limit(config.window_size->right);
  }
  shape.scores.soft_cap = config.attn_logit_softcapping.value_or(0);
  shape.scores.sinks = config.softmax_type == SoftmaxType::Learnable;
  shape.norm_eps = config.norm_epsilon;
  shape.gain_offset = gain_offset(config);
  if (normalizes_sums(config))
    shape.norms = {.input = false, .sum = true};
  else
    shape.norms = {.input = config.norm_position != NormPosition::Output,
                   .output = config.norm_position != NormPosition::Input,
                   .attention_input = !config.no_first_norm};
  shape.order = part_order(config.parallel_residual);
  shape.residual_multiplier = config.residual_multiplier;
  shape.init_std = config.init_method_std;
  // GPT-2 scales the initial projections into the residual stream by their number, two per layer; BERT, which
  // normalises the sum, does not.
  shape.output_init_std = config.init_method_std;
  if (!normalizes_sums(config))
    shape.output_init_std /= std::sqrt(2.0 * static_cast<double>(config.num_layers));
  shape.hidden_dropout = config.hidden_dropout;
  shape.attention_dropout = config.attention_dropout;
  shape.context = {layout.context_exchange(), attention_threads(layout)};
  shape.recompute_selective = layout.recompute_granularity == RecomputeGranularity::Selective;
  return shape;
}

// The head as one block.
Block whole_head(const ModelConfig& config, BlockBuilder& builder, const MeshConfig& layout, ParamId tokens,
                 int64_t padded_vocab) {
  const LanguageFamily& family = language_family(config);
  const int64_t chunk_rows =
      layout.device == ComputeDevice::Cuda ? VocabCrossEntropy::device_chunk_rows(*config.vocab_size) : 0;
  std::optional<FurtherLayers> further;
  if (config.mtp_num_layers > 0)
    further = {shape_of(model_of_last_layer(config), layout),
               layout.recompute_granularity == RecomputeGranularity::Full};
  std::unique_ptr<Layer> layer = family.make_head(builder, config, tokens, padded_vocab, chunk_rows, further);
  return {.layer = std::move(layer), .kind = BlockKind::Head, .slots = builder.slots()};
}

void check_parts(const ModelConfig& config, int parts, int tensor_ranks, int64_t padded_vocab) {
  if (parts == 1) return;
  if (language_family(config).make_head_part == nullptr)
    bad_input("--pipeline-vocab-parts {} needs a GPT, whose output layer can be cut", parts);
  if (padded_vocab % (int64_t{parts} * tensor_ranks) != 0)
    bad_input(
        "--pipeline-vocab-parts {} x --tensor-model-parallel-size {} does not divide the padded "
        "vocabulary of {} tokens",
        parts, tensor_ranks, padded_vocab);
}

// One part of the head as a block.
Block head_part(const ModelConfig& config, BlockBuilder& builder, ParamId tokens, int64_t padded_vocab,
                PartIndex part) {
  const LanguageFamily& family = language_family(config);
  std::unique_ptr<Layer> layer = family.make_head_part(builder, config, tokens, padded_vocab, part);
  return {.layer = std::move(layer),
          .kind = BlockKind::Head,
          .slots = builder.slots(),
          .output = {.row_statistics = part.last() ? 0 : static_cast<int>(VocabPart::kRowStatistics)}};
}

// With adapters, all parameters but theirs are frozen.
void adapt(BlockBuilder& builder, const ModelConfig& config) {
  if (config.adapters.lora_rank) builder.adapt(&config.adapters);
}

// The trained parameters of a block, by their names within it, if others are frozen: with adapters, blocks of a kind may
// differ in them.
std::string trained_in(const ParamList& params, int block, size_t prefix) {
  std::string names;
  for (const ParamSpec& spec : params.specs())
    if (spec.block == block && !spec.frozen) names += spec.shard.name.substr(prefix) + " ";
  return names;
}

// The embedding, and the blocks before it that look up parts of its tokens.
class EmbeddingBlocks {
 public:
  EmbeddingBlocks(const ModelConfig& config, const Mesh& mesh, uint64_t seed, const MeshConfig& layout,
                  int64_t padded_vocab)
      : config_(config),
        mesh_(mesh),
        seed_(seed),
        layout_(layout),
        padded_vocab_(padded_vocab),
        parts_(config.untie_embeddings_and_output_weights ? 1 : layout.pipeline_vocab_parts),
        tokens_(static_cast<size_t>(parts_)),
        taken_(static_cast<size_t>(parts_), false) {}

  void add_to(Model& model, std::span<const std::vector<int>> lookups) {
    const LanguageFamily& family = language_family(config_);
    for (const std::vector<int>& parts : lookups) add(model, family.make_lookup, parts);
    model.lookups = static_cast<int>(lookups.size());
    std::vector<int> rest;
    for (int part = 0; part < parts_; ++part)
      if (!taken_[static_cast<size_t>(part)]) rest.push_back(part);
    add(model, family.make_embedding, rest);
    model.params.pad_after(std::string(model.params[tokens_.front()].shard.name), *config_.vocab_size);
  }

  // The token embedding's parameter that a part of the head is tied to.
  ParamId tokens_of(int part) const { return tokens_[parts_ == 1 ? 0 : static_cast<size_t>(part)]; }

 private:
  template <class Make>
  void add(Model& model, Make make, const std::vector<int>& parts) {
    BlockBuilder builder(model.params, model.reports, mesh_, static_cast<int>(model.blocks.size()), seed_,
                         layout_.sequence_parallel);
    adapt(builder, config_);
    std::vector<ParamId> tokens;
    std::unique_ptr<Layer> layer = make(builder, config_, padded_vocab_, {parts, parts_}, tokens);
    for (size_t i = 0; i < parts.size(); ++i) {
      const auto part = static_cast<size_t>(parts[i]);
      tokens_.at(part) = tokens.at(i);
      taken_[part] = true;
    }
    model.blocks.push_back({.layer = std::move(layer),
                            .kind = BlockKind::Embedding,
                            .slots = builder.slots(),
                            .cached = builder.cached()});
  }

  const ModelConfig& config_;
  const Mesh& mesh_;
  uint64_t seed_;
  const MeshConfig& layout_;
  int64_t padded_vocab_;
  int parts_;
  std::vector<ParamId> tokens_;  // [part]
  std::vector<bool> taken_;      // [part]
};

}  // namespace

Model make_model(const ModelConfig& config, const Mesh& mesh, uint64_t seed, const MeshConfig& layout,
                 std::span<const std::vector<int>> lookups) {
  const LanguageFamily& family = language_family(config);
  if (family.make_whole != nullptr) return family.make_whole(config, mesh, seed, layout);
  Model model;
  model.later_labels = static_cast<int>(config.mtp_num_layers);
  const LayerKinds layers = layer_kinds(config);
  const int64_t padded_vocab = padded_vocab_size(config, mesh.size(Axis::Tp));
  check_parts(config, layout.pipeline_vocab_parts, mesh.size(Axis::Tp), padded_vocab);
  const auto next_block = [&] {
    BlockBuilder builder(model.params, model.reports, mesh, static_cast<int>(model.blocks.size()), seed,
                         layout.sequence_parallel);
    adapt(builder, config);
    return builder;
  };

  model.row_cut = family_of_model(config).causal ? RowCut::BothEnds : RowCut::Consecutive;
  model.row_parts = next_block().sequence_parallel() ? mesh.size(Axis::Tp) : 1;
  EmbeddingBlocks embedding(config, mesh, seed, layout, padded_vocab);
  embedding.add_to(model, lookups);

  std::map<std::pair<size_t, std::string>, int> first_of_kind;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    BlockBuilder builder = next_block();
    const size_t kind = layers.of_layer[static_cast<size_t>(layer)];
    const std::string name = "block." + std::to_string(layer);
    std::unique_ptr<Layer> block =
        family.make_layer(builder, name, shape_of(layers.kinds[kind].model, layout));
    if (layout.recompute_granularity == RecomputeGranularity::Full)
      block = std::make_unique<Recompute>(builder, std::move(block));
    const auto [first, is_new] = first_of_kind.try_emplace(
        {kind, trained_in(model.params, builder.block(), name.size())}, builder.block());
    const int like = is_new ? -1 : first->second;
    model.blocks.push_back({.layer = std::move(block),
                            .kind = BlockKind::Layer,
                            .slots = builder.slots(),
                            .layer_kind = kind,
                            .like = like,
                            .cached = builder.cached()});
  }

  const int parts = layout.pipeline_vocab_parts;
  for (int part = 0; part < parts; ++part) {
    BlockBuilder builder = next_block();
    if (has_task_head(config)) builder.adapt(nullptr);  // it is new, and trained
    const ParamId tokens = embedding.tokens_of(part);
    model.blocks.push_back(parts == 1 ? whole_head(config, builder, layout, tokens, padded_vocab)
                                      : head_part(config, builder, tokens, padded_vocab, {part, parts}));
  }
  for (Block& block : model.blocks) {
    block.output.width = config.hidden_size;
    block.output.row_parts = model.row_parts;
  }
  if (const char* rows = family.head_rows(config)) model.params.pad_after(rows, *config.vocab_size);
  apply_width_rules(model.params, width_ratio(config));
  model.set_backward();
  return model;
}

}  // namespace trifold
