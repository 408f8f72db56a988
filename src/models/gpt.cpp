#include "models/gpt.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "nn/samples/pair_loss.h"

namespace trifold {

AddedTables added_tables(const ModelConfig& config, int64_t types) {
  if (config.position_embedding_type != PositionEmbedding::LearnedAbsolute) return {.types = types};
  return {*config.max_position_embeddings, config.position_embedding_offset, types};
}

GptEmbedding::GptEmbedding(BlockBuilder& builder, const ModelConfig& config, int64_t padded_vocab,
                           const TokenParts& parts)
    : multiplier_(config.embedding_multiplier),
      dropout_(config.hidden_dropout),
      row_part_(builder.row_part()),
      key_(philox_key(builder.seed(), "embedding.dropout")),
      embedding_(builder, "embedding", padded_vocab, added_tables(config), config.hidden_size,
                 {Init::Kind::Normal, config.init_method_std}, parts) {}

Tensor GptEmbedding::forward(Run& run, Tensor earlier, Saved& saved) const {
  const Tensor y = embedding_.forward(run, earlier, saved);
  if (multiplier_ != 1) run.ops.scale(run.stream, y, multiplier_);
  if (dropout_ > 0 && run.training) drop_activation(run, y, y, dropout_, key_, row_part_);
  return y;
}

Tensor GptEmbedding::backward_input(Run& run, Tensor dy, Saved& saved) const {
  const bool drops = dropout_ > 0 && run.training;
  Tensor dx = dy;
  if (drops || multiplier_ != 1) dx = run.flow->take(run.dtype, dy.shape);
  if (drops)
    drop_activation(run, dx, dy, dropout_, key_, row_part_);
  else if (multiplier_ != 1)
    run.ops.copy(run.stream, dx, dy);
  if (multiplier_ != 1) run.ops.scale(run.stream, dx, multiplier_);
  return embedding_.backward_input(run, dx, saved);
}

ActivationForm activation_form(const ModelConfig& config) {
  if (config.swiglu || config.quick_geglu) {
    if (!config.quick_geglu && !config.activation_func_clamp_value && config.glu_linear_offset == 0)
      return ActivationKind::Swiglu;
    constexpr double kNone = std::numeric_limits<double>::infinity();
    return ActivationForm::clamped_swiglu(config.quick_geglu ? 1.702 : 1,
                                          config.activation_func_clamp_value.value_or(kNone),
                                          config.glu_linear_offset);
  }
  if (config.geglu) return config.gelu == GeluKind::Erf ? ActivationKind::GegluErf : ActivationKind::Geglu;
  if (config.relu) return ActivationKind::Relu;
  if (config.squared_relu) return ActivationKind::SquaredRelu;
  return config.gelu == GeluKind::Erf ? ActivationKind::GeluErf : ActivationKind::Gelu;
}

ActivationForm head_activation_form(const ModelConfig& config) {
  ModelConfig plain = config;
  plain.swiglu = plain.geglu = plain.quick_geglu = false;
  return activation_form(plain);
}

NormForm norm_form(const ModelConfig& config) {
  return {config.normalization, config.norm_epsilon, gain_offset(config), !config.disable_bias_norm};
}

namespace {

ParamId head_weight(BlockBuilder& builder, const ModelConfig& config, ParamId tokens, int64_t padded_vocab,
                    PartIndex part = {}) {
  if (!config.untie_embeddings_and_output_weights) return builder.tied(tokens, "head");
  const Init init{Init::Kind::Normal, config.init_method_std};
  const Shape shape{padded_vocab, config.hidden_size};
  return builder.table(part.parts == 1
                           ? builder.sharded("head.weight", shape, 0, init, true)
                           : builder.sharded_part("head.weight", shape, part.index, part.parts, init, true));
}

LogitForm logit_form(const ModelConfig& config) {
  return {1 / without_base_width(config).logits_scaling, config.final_logit_softcapping.value_or(0)};
}

std::unique_ptr<SampleLoss> sample_loss(BlockBuilder& builder, const ModelConfig& config) {
  if (!config.pair_loss) return nullptr;
  return std::make_unique<PairLoss>(builder, *config.pair_loss);
}

}  // namespace

GptHead::GptHead(BlockBuilder& builder, const ModelConfig& config, ParamId tokens, int64_t padded_vocab,
                 int64_t chunk_rows, const std::optional<FurtherLayers>& further)
    : norm_(builder, "final_norm", config.hidden_size, norm_form(config)),
      weight_(head_weight(builder, config, tokens, padded_vocab)),
      loss_(builder, "head", weight_, *config.vocab_size, chunk_rows, {}, logit_form(config), {},
            sample_loss(builder, config)) {
  if (config.mtp_num_layers == 0) return;
  check(further.has_value(), "{} modules predict further tokens, but have no layers", config.mtp_num_layers);
  PredictionShape shape;
  shape.layer = further->shape;
  shape.recompute = further->recompute;
  shape.norm = norm_form(config);
  shape.init = {Init::Kind::Normal, config.init_method_std};
  shape.embedding_multiplier = config.embedding_multiplier;
  shape.hidden_dropout = config.hidden_dropout;
  // The gradient of the embedding's use here is summed in several parts: of each module, and of the tied output.
  shape.tokens = config.untie_embeddings_and_output_weights ? builder.tied(tokens, "mtp") : weight_;
  builder.added_in_parts(tokens);
  shape.output = weight_;
  shape.vocab = *config.vocab_size;
  shape.chunk_rows = chunk_rows;
  shape.logits = logit_form(config);
  for (int k = 1; k <= config.mtp_num_layers; ++k)
    modules_.push_back(std::make_unique<PredictionModule>(builder, "mtp." + std::to_string(k - 1), k, shape));
}

// Without modules, nothing needs the norm's result when the loss returns. With them it is kept in evaluations too, which
// have a training step's memory.
Tensor GptHead::forward(Run& run, Tensor x, Saved& saved) const {
  if (!modules_.empty()) {
    Run kept = run.keeping_in(*run.keep);
    Tensor hidden = norm_.forward(kept, x, saved);
    loss_.forward(kept, hidden, saved);
    if (!run.has_backward()) return {};
    for (const auto& module : modules_) hidden = module->forward(kept, hidden, saved);
    return {};
  }
  const Arena::Mark mark = run.scratch.mark();
  const Tensor y = run.scratch.take(run.dtype, x.shape);
  norm_.forward_to(run, y, x, saved);
  loss_.forward(run, y, saved);
  run.scratch.release(mark);
  return {};
}

template <class Backward>
Tensor GptHead::gradient_of_normed(Run& run, Saved& saved, Backward backward) const {
  Tensor later;
  for (size_t i = modules_.size(); i-- > 0;) later = backward(*modules_[i], later);
  const Tensor own = loss_.backward_input(run, {}, saved);
  if (modules_.empty()) return own;
  const Tensor sum = run.flow->take(run.dtype, own.shape);
  run.ops.add(run.stream, sum, own, later);
  return sum;
}

Tensor GptHead::backward_input(Run& run, Tensor /*no_gradient*/, Saved& saved) const {
  const Tensor dy = gradient_of_normed(run, saved, [&](const PredictionModule& module, Tensor later) {
    return module.backward_input(run, later, saved);
  });
  return norm_.backward_input(run, dy, saved);
}

void GptHead::backward_weight(Run& run, Saved& saved) const {
  for (size_t i = modules_.size(); i-- > 0;) modules_[i]->backward_weight(run, saved);
  norm_.backward_weight(run, saved);
}

Tensor GptHead::backward(Run& run, Tensor /*no_gradient*/, Saved& saved) const {
  const Tensor dy = gradient_of_normed(run, saved, [&](const PredictionModule& module, Tensor later) {
    return module.backward(run, later, saved);
  });
  return norm_.backward(run, dy, saved);
}

bool GptHead::weight_backward_reads_weights() const {
  return std::any_of(modules_.begin(), modules_.end(),
                     [](const auto& module) { return module->weight_backward_reads_weights(); });
}

Tensor GptHead::logits(Run& run, Tensor x, int64_t begin, int64_t end, Saved& saved) const {
  return loss_.logits(run, norm_.forward(run, x.rows(begin, end), saved));
}

std::unique_ptr<Layer> make_gpt_lookup(BlockBuilder& builder, const ModelConfig& config, int64_t padded_vocab,
                                       const TokenParts& parts, std::vector<ParamId>& tokens) {
  auto lookup =
      std::make_unique<VocabEmbedding>(builder, "embedding", padded_vocab, AddedTables{}, config.hidden_size,
                                       Init{Init::Kind::Normal, config.init_method_std}, parts);
  tokens = lookup->tokens();
  return lookup;
}

std::unique_ptr<Layer> make_gpt_head_part(BlockBuilder& builder, const ModelConfig& config, ParamId tokens,
                                          int64_t padded_vocab, PartIndex part) {
  std::optional<Norm> norm;
  if (part.first()) norm.emplace(builder, "final_norm", config.hidden_size, norm_form(config));
  const ParamId weight = head_weight(builder, config, tokens, padded_vocab, part);
  VocabPart layer(builder, "head", weight, *config.vocab_size, part, logit_form(config),
                  sample_loss(builder, config));
  if (!norm) return std::make_unique<VocabPart>(std::move(layer));
  return std::make_unique<NormedVocabPart>(std::move(*norm), std::move(layer));
}

int64_t padded_vocab_size(const ModelConfig& config, int tensor_parallel) {
  const int64_t unit = config.make_vocab_size_divisible_by * tensor_parallel;
  return (*config.vocab_size + unit - 1) / unit * unit;
}

}  // namespace trifold
