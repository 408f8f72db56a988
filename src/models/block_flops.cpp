#include "models/block_flops.h"

#include "config/model_family.h"

namespace trifold {

BlockFlops flops_of_layer(const ModelConfig& config, RecomputeGranularity recompute) {
  const auto t = static_cast<double>(config.seq_length);
  const auto c = static_cast<double>(config.hidden_size);
  const auto f = static_cast<double>(inner_width(config));
  const auto query = static_cast<double>(config.num_attention_heads * head_width(config));
  const auto key_value = static_cast<double>(2 * key_heads(config) * head_width(config));
  const double mlp = config.swiglu ? 3 : 2;
  const double seen = family_of_model(config).causal ? 0.5 : 1;
  const double projections = 2 * t * (c * (2 * query + key_value) + mlp * c * f);
  const double attention = seen * 4 * t * t * query;  // queries with keys, probabilities with values
  BlockFlops flops{projections + attention, projections + 2 * attention, projections};
  // Selective recomputation repeats norms and activations: no product.
  if (recompute == RecomputeGranularity::Full) flops.input += flops.forward;
  return flops;
}

// Besides the products with the vocabulary: BERT's dense layer, its pooler and classifier on one row of a
// sample, the two columns of a span.
BlockFlops flops_of_head(const ModelConfig& config, int64_t padded_vocab) {
  const auto c = static_cast<double>(config.hidden_size);
  const auto rows = static_cast<double>(config.seq_length);
  const auto layer = [](double each) { return BlockFlops{each, each, each}; };
  const auto pooled = [&](double classes) { return 2 * c * c + 2 * c * classes; };
  if (config.bert_head == HeadKind::Classes)
    return layer(pooled(static_cast<double>(config.class_names.size())));
  if (config.bert_head == HeadKind::Span) return layer(2 * rows * c * 2);
  BlockFlops flops;
  if (is_bert(config)) flops = layer(2 * rows * c * c + (config.bert_no_binary_head ? 0 : pooled(2)));
  flops.forward += 3 * 2 * rows * c * static_cast<double>(padded_vocab);
  return flops;
}

}  // namespace trifold
