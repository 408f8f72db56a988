#include "models/gpt.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "models/transformer.h"
#include "nn/recompute.h"

namespace trifold {

GptEmbedding::GptEmbedding(BlockBuilder& builder, const ModelConfig& config, int64_t padded_vocab)
    : dropout_(config.hidden_dropout),
      row_part_(builder.row_part()),
      key_(philox_key(builder.seed(), "embedding.dropout")),
      embedding_(builder, "embedding", padded_vocab,
                 config.position_embedding_type == "learned_absolute" ? *config.max_position_embeddings : 0,
                 config.hidden_size, {Init::Kind::Normal, config.init_method_std}) {}

Dropout GptEmbedding::mask(const Run& run, Tensor y) const {
  const int64_t first_row = first_global_row(*run.batch, row_part_, y.row_count());
  return {run.training ? dropout_ : 0.0, key_, static_cast<uint64_t>(first_row * y.last_dim())};
}

Tensor GptEmbedding::forward(Run& run, Tensor no_input, Saved& saved) const {
  const Tensor y = embedding_.forward(run, no_input, saved);
  if (dropout_ > 0 && run.training) run.ops.dropout(run.stream, y, y, mask(run, y));
  return y;
}

Tensor GptEmbedding::backward_input(Run& run, Tensor dy, Saved& saved) const {
  Tensor dx = dy;
  if (dropout_ > 0 && run.training) {
    dx = run.flow.take(run.dtype, dy.shape);
    run.ops.dropout(run.stream, dx, dy, mask(run, dy));
  }
  return embedding_.backward_input(run, dx, saved);
}

namespace {

NormKind norm_kind(const ModelConfig& config) {
  return config.normalization == "RMSNorm" ? NormKind::Rms : NormKind::Layer;
}

ParamId head_weight(BlockBuilder& builder, const ModelConfig& config, ParamId tokens, int64_t padded_vocab) {
  if (!config.untie_embeddings_and_output_weights) return builder.tied(tokens, "head");
  return builder.sharded("head.weight", {padded_vocab, config.hidden_size}, 0,
                         {Init::Kind::Normal, config.init_method_std}, true);
}

}  // namespace

GptHead::GptHead(BlockBuilder& builder, const ModelConfig& config, ParamId tokens, int64_t padded_vocab)
    : norm_(builder, "final_norm", config.hidden_size, norm_kind(config), config.norm_epsilon),
      loss_(builder, "head", head_weight(builder, config, tokens, padded_vocab), *config.vocab_size) {}

// The loss is done with the norm's result when it returns.
Tensor GptHead::forward(Run& run, Tensor x, Saved& saved) const {
  const Arena::Mark mark = run.scratch.mark();
  const Tensor y = run.scratch.take(run.dtype, x.shape);
  norm_.forward_to(run, y, x, saved);
  loss_.forward(run, y, saved);
  run.scratch.release(mark);
  return {};
}

Tensor GptHead::backward_input(Run& run, Tensor no_gradient, Saved& saved) const {
  return norm_.backward_input(run, loss_.backward_input(run, no_gradient, saved), saved);
}

void GptHead::backward_weight(Run& run, Saved& saved) const { norm_.backward_weight(run, saved); }

Tensor GptHead::backward(Run& run, Tensor no_gradient, Saved& saved) const {
  return norm_.backward(run, loss_.backward(run, no_gradient, saved), saved);
}

Tensor GptHead::logits(Run& run, Tensor x, int64_t begin, int64_t end, Saved& saved) const {
  return loss_.logits(run, norm_.forward(run, x.rows(begin, end), saved));
}

// Pair i of the first 2n numbers of a head turns by base^(-i/n) radians a position (Su et al., arXiv
// 2104.09864). Scaling is that of Llama 3.1, which stretches a model of 8192 positions to `factor` times as
// many: pairs that turn fewer than once in them do so more slowly by the factor, pairs that turn more than
// four times stay, those between are blended.
std::vector<double> rotary_frequencies(const ModelConfig& config) {
  constexpr double kOriginalPositions = 8192, kSlow = 1, kFast = 4;
  const auto turned = static_cast<double>(head_width(config)) * config.rotary_percent;
  const auto pairs = static_cast<int64_t>(turned) / 2;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < pairs; ++i) {
    double radians = std::pow(config.rotary_base, -static_cast<double>(i) / static_cast<double>(pairs));
    if (config.use_rope_scaling) {
      const double turns = kOriginalPositions * radians / (2 * std::numbers::pi);
      const double kept = std::clamp((turns - kSlow) / (kFast - kSlow), 0.0, 1.0);
      radians *= kept + (1 - kept) / config.rope_scaling_factor;
    }
    frequencies.push_back(radians);
  }
  return frequencies;
}

int64_t padded_vocab_size(const ModelConfig& config, int tensor_parallel) {
  const int64_t unit = config.make_vocab_size_divisible_by * tensor_parallel;
  return (*config.vocab_size + unit - 1) / unit * unit;
}

namespace {

TransformerShape shape_of(const ModelConfig& config, const MeshConfig& layout) {
  TransformerShape shape;
  shape.width = config.hidden_size;
  shape.heads = config.num_attention_heads;
  shape.kv_heads = key_heads(config);
  shape.head_dim = head_width(config);
  shape.ffn = *config.ffn_hidden_size;
  shape.norm = norm_kind(config);
  shape.activation = config.swiglu ? ActivationKind::Swiglu : ActivationKind::Gelu;
  shape.bias = !config.disable_bias_linear;
  shape.head_norm = config.qk_layernorm;
  if (config.position_embedding_type == "rope") shape.rotary_frequencies = rotary_frequencies(config);
  shape.norm_eps = config.norm_epsilon;
  shape.init_std = config.init_method_std;
  // GPT-2 scales the projections into the residual stream by the number of them, two a layer.
  shape.output_init_std = config.init_method_std / std::sqrt(2.0 * static_cast<double>(config.num_layers));
  shape.hidden_dropout = config.hidden_dropout;
  shape.attention_dropout = config.attention_dropout;
  shape.recompute_selective = layout.recompute_granularity == RecomputeGranularity::Selective;
  return shape;
}

// Forward flops of one sample in one transformer block: the projections, and half of the two T x T products.
double block_flops(const ModelConfig& config, const TransformerShape& shape) {
  const auto t = static_cast<double>(config.seq_length);
  const auto c = static_cast<double>(shape.width);
  const auto f = static_cast<double>(shape.ffn);
  const auto query = static_cast<double>(shape.heads * shape.head_dim);
  const auto key_value = static_cast<double>(2 * shape.kv_heads * shape.head_dim);
  const double mlp = shape.activation == ActivationKind::Swiglu ? 3 : 2;
  return 2 * t * (c * (2 * query + key_value) + mlp * c * f) + 0.5 * 4 * t * t * query;
}

// The embedding has no matrix products; its cost is that of moving its rows, at the flops a machine does
// while it moves an element a few times.
double embedding_cost(const ModelConfig& config) {
  constexpr double kFlopsPerElement = 64;
  return kFlopsPerElement * static_cast<double>(config.seq_length * config.hidden_size);
}

}  // namespace

Model make_gpt(const ModelConfig& config, const Mesh& mesh, uint64_t seed, const MeshConfig& layout) {
  Model model;
  const TransformerShape shape = shape_of(config, layout);
  int index = 0;
  const int64_t padded_vocab = padded_vocab_size(config, mesh.size(Axis::Tp));

  BlockBuilder first(model.params, mesh, index++, seed, layout.sequence_parallel);
  model.row_parts = first.sequence_parallel() ? mesh.size(Axis::Tp) : 1;
  auto embedding = std::make_unique<GptEmbedding>(first, config, padded_vocab);
  const ParamId tokens = embedding->tokens();
  model.params.pad_after(tokens, *config.vocab_size);
  model.blocks.push_back({std::move(embedding), first.slots(), 0, embedding_cost(config)});

  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    BlockBuilder builder(model.params, mesh, index++, seed, layout.sequence_parallel);
    std::unique_ptr<Layer> block =
        std::make_unique<TransformerBlock>(builder, "block." + std::to_string(layer), shape);
    if (layout.recompute_granularity == RecomputeGranularity::Full)
      block = std::make_unique<Recompute>(builder, std::move(block));
    const double flops = block_flops(config, shape);
    model.blocks.push_back({std::move(block), builder.slots(), flops, flops});
  }

  BlockBuilder last(model.params, mesh, index, seed, layout.sequence_parallel);
  auto head = std::make_unique<GptHead>(last, config, tokens, padded_vocab);
  if (config.untie_embeddings_and_output_weights)
    model.params.pad_after(model.params.find("head.weight"), *config.vocab_size);
  const double head_flops = 2.0 * static_cast<double>(config.seq_length * config.hidden_size * padded_vocab);
  model.blocks.push_back({std::move(head), last.slots(), head_flops, head_flops});
  return model;
}

}  // namespace trifold
