// PredictionModule: multi-token prediction as in DeepSeek-V3 (arXiv 2412.19437, section 2.2). Module k = 1..D follows the
// final norm and predicts, at position i, the token k places after the next one:
//   h' = W_k [norm(Emb(t_{i+k})), norm(h^{k-1}_i)],  h^k = norm(layer(h')),  loss_k = cross entropy of E h^k with t_{i+k+1}.
// Emb and the output weight E are the model's; `layer` is a transformer block like the model's last. As in Megatron-LM,
// h^0 and h^k are the normalised tensors that E multiplies. loss_k is the mean over the positions that have a label
// (Batch::later_weights); the model is trained with
//   loss + (factor / D) sum over k of loss_k.
// Modules take part in training steps only.
//
// The projection is cut along its inputs over the tensor axis, so each rank takes its columns of the concatenation.
#pragma once

#include <memory>
#include <string>

#include "models/transformer.h"
#include "tensor_parallel/linear.h"
#include "tensor_parallel/vocab.h"

namespace trifold {

// What a model's modules have in common with its other blocks.
struct PredictionShape {
  TransformerShape layer;
  bool recompute = false;  // the layer's activations
  NormForm norm;
  Init init;                        // the projection's
  double embedding_multiplier = 1;  // as the model's embedding
  double hidden_dropout = 0;        // likewise
  ParamId tokens;                   // the token embedding, or its use in this block
  ParamId output;                   // E, as VocabCrossEntropy's weight
  int64_t vocab = 0;
  int64_t chunk_rows = 0;  // as in VocabCrossEntropy
  LogitForm logits = {};
};

// Names of the reports of modules (nn/reports.h) for k = 1..D: the loss term with the sum of loss_k over its positions,
// and the batch value by which its gradient is multiplied, the factor / D times the ratio of the sums of the weights of
// the model's loss and of loss_k.
struct PredictionReports {
  static std::string loss(int k) { return "mtp loss " + std::to_string(k); }
  static std::string scale(int k) { return "mtp scale " + std::to_string(k); }
};

class PredictionModule final : public Layer {
 public:
  // Module `k`, counted from 1. Parameters <name>.embedding_norm.*, <name>.hidden_norm.*, <name>.projection.weight
  // [C, 2C], the parameters of the layer, <name>.*, and <name>.final_norm.*.
  PredictionModule(BlockBuilder& builder, const std::string& name, int k, const PredictionShape& shape);
  // h^{k-1} [Ro, C] -> h^k [Ro, C], in run.keep. Also computes the loss.
  Tensor forward(Run& outer, Tensor hidden, Saved& saved) const override;
  // The gradient of h^k by later modules, or {} -> the gradient of h^{k-1} by this and later ones.
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override {
    return compute_backward(run, dy, saved, false);
  }
  void backward_weight(Run& run, Saved& saved) const override;
  bool weight_backward_reads_weights() const override { return layer_->weight_backward_reads_weights(); }
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override {
    return compute_backward(run, dy, saved, true);
  }
  bool adds_in_forward() const override { return true; }

 private:
  Tensor compute_backward(Run& run, Tensor dy, Saved& saved, bool with_weights) const;
  Tensor tokens_of(const Run& run) const;  // t_{i+k}, of all rows
  Tensor embed(Run& run) const;            // [Ro, C], in run.keep
  void add_token_gradient(Run& run, Saved& saved) const;
  void move_columns(Run& run, Tensor y, int64_t y_column, Tensor x, int64_t x_column, int64_t columns,
                    bool all_rows = false) const;

  std::string name_;
  int k_;
  int64_t width_;
  Region region_;
  int tensor_part_;
  int row_part_;
  double multiplier_, dropout_;
  PhiloxKey key_;
  ParamId tokens_;
  int64_t first_id_;  // first token id of this rank's rows
  Norm embedding_norm_, hidden_norm_;
  RowLinear projection_;
  std::unique_ptr<Layer> layer_;
  Norm final_norm_;
  VocabCrossEntropy loss_;
  SlotId dtokens_;
};

}  // namespace trifold
