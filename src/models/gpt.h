// First and last blocks of models that predict the next token, GPT-2 and Llama. The embedding adds learned positions if
// configured. The head is tied to the token embedding unless the configuration unties it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "config/fields/config.h"
#include "models/prediction_module.h"
#include "nn/layers.h"
#include "tensor_parallel/vocab.h"
#include "tensor_parallel/vocab_part.h"

namespace trifold {

// The tables that a model adds to the vectors of tokens; types are BERT's.
AddedTables added_tables(const ModelConfig& config, int64_t types = 0);

// First block: embedding, times a constant, then dropout.
class GptEmbedding final : public Layer {
 public:
  // `parts`, and `earlier` of forward, as in VocabEmbedding.
  GptEmbedding(BlockBuilder& builder, const ModelConfig& config, int64_t padded_vocab,
               const TokenParts& parts = {});
  Tensor forward(Run& run, Tensor earlier, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;
  void backward_weight(Run& run, Saved& saved) const override { embedding_.backward_weight(run, saved); }
  std::vector<ParamId> tokens() const { return embedding_.tokens(); }

 private:
  double multiplier_;
  double dropout_;
  int row_part_;
  PhiloxKey key_;
  VocabEmbedding embedding_;
};

// The layers of modules that predict further tokens.
struct FurtherLayers {
  TransformerShape shape;
  bool recompute = false;
};

// Last block: final norm and loss, then modules that predict further tokens. `logits` is for sampling.
class GptHead final : public Layer {
 public:
  // `chunk_rows` as in VocabCrossEntropy. `further` is needed if the model has modules: parameters mtp.<0..D-1>.*; an
  // output weight of its own makes the embedding tied (tokens@mtp).
  GptHead(BlockBuilder& builder, const ModelConfig& config, ParamId tokens, int64_t padded_vocab,
          int64_t chunk_rows = 0, const std::optional<FurtherLayers>& further = {});
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor no_gradient, Saved& saved) const override;
  void backward_weight(Run& run, Saved& saved) const override;
  Tensor backward(Run& run, Tensor no_gradient, Saved& saved) const override;
  bool adds_in_forward() const override { return loss_.adds_in_forward(); }
  bool weight_backward_reads_weights() const override;
  // Logits of rows [begin, end) of x [R, C]: [end - begin, V/tp].
  Tensor logits(Run& run, Tensor x, int64_t begin, int64_t end, Saved& saved) const;

 private:
  // The gradient of the final norm's output.
  template <class Backward>
  Tensor gradient_of_normed(Run& run, Saved& saved, Backward backward) const;

  Norm norm_;
  ParamId weight_;
  VocabCrossEntropy loss_;
  std::vector<std::unique_ptr<PredictionModule>> modules_;
};

// Makes a block before the embedding that looks up the tokens of some parts alone. `tokens` receives their parameters.
std::unique_ptr<Layer> make_gpt_lookup(BlockBuilder& builder, const ModelConfig& config, int64_t padded_vocab,
                                       const TokenParts& parts, std::vector<ParamId>& tokens);

// Makes a part of a GPT's head. `tokens` is the same part of the token embedding, if the head is tied to it.
std::unique_ptr<Layer> make_gpt_head_part(BlockBuilder& builder, const ModelConfig& config, ParamId tokens,
                                          int64_t padded_vocab, PartIndex part);

// The vocabulary size, rounded up to a multiple of make_vocab_size_divisible_by * tensor-parallel size.
int64_t padded_vocab_size(const ModelConfig& config, int tensor_parallel);

// The activation of the feed-forward networks; and of a BERT's head, which has the same or, in place of gates, GELU.
ActivationForm activation_form(const ModelConfig& config);
ActivationForm head_activation_form(const ModelConfig& config);
// The form of the model's norms.
NormForm norm_form(const ModelConfig& config);

}  // namespace trifold
