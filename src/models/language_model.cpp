#include "models/language_model.h"

#include <cmath>
#include <string>

#include "config/model_family.h"
#include "models/bert_tasks.h"
#include "models/block_flops.h"
#include "models/gpt.h"
#include "models/post_norm_block.h"
#include "nn/recompute.h"

namespace trifold {

namespace {

TransformerShape shape_of(const ModelConfig& config, const MeshConfig& layout) {
  TransformerShape shape;
  shape.width = config.hidden_size;
  shape.heads = config.num_attention_heads;
  shape.kv_heads = key_heads(config);
  shape.head_dim = head_width(config);
  shape.ffn = *config.ffn_hidden_size;
  shape.norm = norm_kind(config);
  shape.activation = config.swiglu ? ActivationKind::Swiglu : gelu_kind(config);
  shape.bias = !config.disable_bias_linear;
  shape.head_norm = config.qk_layernorm;
  if (config.position_embedding_type == PositionEmbedding::Rope)
    shape.rotary_frequencies = rotary_frequencies(config);
  shape.norm_eps = config.norm_epsilon;
  shape.init_std = config.init_method_std;
  // GPT-2 scales the projections into the residual stream by the number of them, two a layer; BERT, which
  // normalises their sum, does not.
  shape.output_init_std = config.init_method_std;
  if (family_of_model(config).scales_residual_init)
    shape.output_init_std /= std::sqrt(2.0 * static_cast<double>(config.num_layers));
  shape.hidden_dropout = config.hidden_dropout;
  shape.attention_dropout = config.attention_dropout;
  shape.recompute_selective = layout.recompute_granularity == RecomputeGranularity::Selective;
  return shape;
}

// The embedding has no matrix products; its cost is that of moving its rows, at the flops a machine does
// while it moves an element a few times.
double embedding_cost(const ModelConfig& config) {
  constexpr double kFlopsPerElement = 64;
  return kFlopsPerElement * static_cast<double>(config.seq_length * config.hidden_size);
}

// Puts the first block together; returns the token embedding's weight, and the block in `layer`.
ParamId make_embedding(BlockBuilder& builder, const ModelConfig& config, int64_t padded_vocab,
                       std::unique_ptr<Layer>& layer) {
  const auto keep = [&](auto embedding) {
    const ParamId tokens = embedding->tokens();
    layer = std::move(embedding);
    return tokens;
  };
  if (is_bert(config)) return keep(std::make_unique<BertEmbedding>(builder, config, padded_vocab));
  return keep(std::make_unique<GptEmbedding>(builder, config, padded_vocab));
}

std::unique_ptr<Layer> make_block(BlockBuilder& builder, const std::string& name, const ModelConfig& config,
                                  const TransformerShape& shape) {
  if (is_bert(config)) return std::make_unique<PostNormBlock>(builder, name, shape);
  return std::make_unique<TransformerBlock>(builder, name, shape);
}

std::unique_ptr<Layer> make_head(BlockBuilder& builder, const ModelConfig& config, ParamId tokens,
                                 int64_t padded_vocab, int64_t chunk_rows) {
  if (config.bert_head == HeadKind::Classes) return std::make_unique<ClassHead>(builder, config);
  if (config.bert_head == HeadKind::Span) return std::make_unique<SpanHead>(builder, config);
  if (is_bert(config))
    return std::make_unique<BertHead>(builder, config, tokens, padded_vocab, !config.bert_no_binary_head,
                                      chunk_rows);
  return std::make_unique<GptHead>(builder, config, tokens, padded_vocab, chunk_rows);
}

// Of the products with the vocabulary, and of BERT's product before it; the few rows of its pooler do not
// count, and of a task's head nothing else than these or two columns.
double head_flops(const ModelConfig& config, int64_t padded_vocab) {
  if (has_task_head(config)) return 4.0 * static_cast<double>(config.seq_length * config.hidden_size);
  const int64_t columns = padded_vocab + (is_bert(config) ? config.hidden_size : 0);
  return 2.0 * static_cast<double>(config.seq_length * config.hidden_size * columns);
}

}  // namespace

Model make_model(const ModelConfig& config, const Mesh& mesh, uint64_t seed, const MeshConfig& layout) {
  Model model;
  const TransformerShape shape = shape_of(config, layout);
  int index = 0;
  const int64_t padded_vocab = padded_vocab_size(config, mesh.size(Axis::Tp));

  BlockBuilder first(model.params, mesh, index++, seed, layout.sequence_parallel);
  model.row_parts = first.sequence_parallel() ? mesh.size(Axis::Tp) : 1;
  std::unique_ptr<Layer> embedding;
  const ParamId tokens = make_embedding(first, config, padded_vocab, embedding);
  model.params.pad_after(tokens, *config.vocab_size);
  model.blocks.push_back({std::move(embedding), first.slots(), 0, embedding_cost(config)});

  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    BlockBuilder builder(model.params, mesh, index++, seed, layout.sequence_parallel);
    std::unique_ptr<Layer> block = make_block(builder, "block." + std::to_string(layer), config, shape);
    if (layout.recompute_granularity == RecomputeGranularity::Full)
      block = std::make_unique<Recompute>(builder, std::move(block));
    const double flops = flops_of_layer(config, RecomputeGranularity::None).forward;
    model.blocks.push_back({std::move(block), builder.slots(), flops, flops});
  }

  BlockBuilder last(model.params, mesh, index, seed, layout.sequence_parallel);
  const int64_t chunk_rows =
      layout.device == ComputeDevice::Cuda ? VocabCrossEntropy::device_chunk_rows(*config.vocab_size) : 0;
  std::unique_ptr<Layer> head = make_head(last, config, tokens, padded_vocab, chunk_rows);
  if (is_bert(config) && !has_task_head(config))
    model.params.pad_after(model.params.find("head.bias"), *config.vocab_size);
  if (config.untie_embeddings_and_output_weights)
    model.params.pad_after(model.params.find("head.weight"), *config.vocab_size);
  const double flops = head_flops(config, padded_vocab);
  model.blocks.push_back({std::move(head), last.slots(), flops, flops});
  return model;
}

}  // namespace trifold
