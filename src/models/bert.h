// Layers of BERT that other models do not have (Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers",
// NAACL 2019). A sample is a pair of sentences with masked tokens (tasks/bert_samples.h). The loss is the sum of two
// mean cross entropies over the global batch: for the masked tokens, and for whether the second sentence follows the
// first.
//
// R = rows of the micro-batch on this rank (samples * positions, or a slice of them under sequence parallelism),
// C = width, V = padded vocabulary, n = samples whose first row is on this rank.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "nn/layers.h"
#include "nn/linear.h"
#include "tensor_parallel/vocab.h"

namespace trifold {

// First block: the sum of token, position and sentence embeddings, norm, dropout; then, if the embedding is not as wide as
// the model, a dense layer (Clark et al., "ELECTRA", ICLR 2020). {} -> [R, C]. Parameters embedding.*, embedding.norm.* and
// embedding.projection.{weight, bias}.
class BertEmbedding final : public Layer {
 public:
  BertEmbedding(BlockBuilder& builder, const ModelConfig& config, int64_t padded_vocab);
  Tensor forward(Run& run, Tensor no_input, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;
  void backward_weight(Run& run, Saved& saved) const override;
  std::vector<ParamId> tokens() const { return embedding_.tokens(); }

 private:
  double dropout_;
  int row_part_;
  PhiloxKey key_;
  VocabEmbedding embedding_;
  Norm norm_;
  std::optional<WholeLinear> projection_;
};

// The samples [first, first + count) whose first rows are in rows [begin, begin + rows) of a micro-batch. Sample
// `first` begins at row begin + `row`.
struct SamplesOfRows {
  int64_t first, count, row;
};
SamplesOfRows samples_of_rows(int64_t seq_length, int64_t begin, int64_t rows);

// Classifies each sample from its first row:
//   pooled = drop(tanh(x W^T + b)), logits = pooled U^T + c, cross entropy with batch.pair_labels.
// Parameters pooler.{weight, bias} [C, C], [C] and <name>.{weight, bias} [classes, C], [classes]. Adds the losses,
// weighted by batch.pair_weight, to run.loss_sum; unless it is the only loss (`alone`), they are multiplied by the
// batch value kPairScale. Not a Layer, because it adds the gradient of the samples' first rows to a gradient of all
// rows.
class PooledHead {
 public:
  // The default, "pair": whether the second sentence follows the first.
  struct Form {
    std::string name = "pair";
    int64_t classes = 2;
    double dropout = 0;
    bool alone = false;
  };
  // The factor of a pair's loss: labels / pairs of the global batch, so that both losses are means after the sum is
  // divided by the number of labels.
  static constexpr const char* kPairScale = "pair scale";

  PooledHead(BlockBuilder& builder, int64_t width, Init init, Form form);
  void forward(Run& run, Tensor x, Saved& saved) const;  // x [R, C]
  void add_input_gradient(Run& run, Tensor dx,
                          Saved& saved) const;  // dx [R, C], += for first rows of samples
  void backward_weight(Run& run, Saved& saved) const;

 private:
  SamplesOfRows local_samples(const Run& run, int64_t rows) const {
    if (run.batch->held_rows().runs().front().begin > 0)
      return {0, 0, 0};  // first rows are on another context rank
    return samples_of_rows(run.batch->seq_length(), row_part_ * rows, rows);
  }
  bool drops(const Run& run) const { return form_.dropout > 0 && run.training; }
  Dropout mask(const Run& run, const SamplesOfRows& samples, int64_t width) const;
  // Overwrites logits [n, classes] with their gradient if a backward pass follows. total f64 [1] += the weighted
  // losses.
  void find_losses(Run& run, Tensor logits, const SamplesOfRows& samples, Tensor total) const;

  Form form_;
  int row_part_;
  bool slices_;
  PhiloxKey key_;
  ParamId pooler_weight_, pooler_bias_, weight_, bias_;
  std::optional<BatchValueId> scale_;
  SlotId x_, pooled_, dropped_, dlogits_, dz_;
};

// Last block: logits of all tokens = norm(gelu(dense(x))) E^T + bias, with E the token embedding, and the losses.
// All of them are as wide as the embedding. Parameters head.dense.{weight, bias}, head.norm.{gain, bias}, head.bias [V], and the parameters of PooledHead. The dense
// layer and the norm have biases as the model says.
class BertHead final : public Layer {
 public:
  // `pairs`: whether it has a PooledHead. `chunk_rows` as in VocabCrossEntropy.
  BertHead(BlockBuilder& builder, const ModelConfig& config, ParamId tokens, int64_t padded_vocab, bool pairs,
           int64_t chunk_rows = 0);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor no_gradient, Saved& saved) const override;
  void backward_weight(Run& run, Saved& saved) const override;
  bool adds_in_forward() const override { return loss_.adds_in_forward(); }

 private:
  WholeLinear dense_;
  Activation activation_;
  Norm norm_;
  VocabCrossEntropy loss_;
  std::optional<PooledHead> pair_;
};

// A head after the final norm, which a model has whose layers do not end with norms of their sums (--pre-norm). The norm
// is registered before the head, as final_norm.
class NormedHead final : public Layer {
 public:
  NormedHead(Norm norm, std::unique_ptr<Layer> head);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;                   // [R, C] -> {}
  Tensor backward_input(Run& run, Tensor no_gradient, Saved& saved) const override;  // {} -> [R, C]
  void backward_weight(Run& run, Saved& saved) const override;
  bool adds_in_forward() const override { return head_->adds_in_forward(); }
  bool weight_backward_reads_weights() const override { return head_->weight_backward_reads_weights(); }

 private:
  Norm norm_;
  std::unique_ptr<Layer> head_;
};

}  // namespace trifold
