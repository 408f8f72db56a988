// Heads for finetuning BERT on a task (Devlin et al., NAACL 2019, section 4): the last block in place of BertHead.
// Their losses are means over the samples: each adds the samples' weights to run.weight_sum. Of context ranks, the
// first adds losses and weights.
//
// R = rows of the micro-batch on this rank, C = width, b = samples, T = positions.
#pragma once

#include <string_view>

#include "models/bert.h"
#include "tensor_parallel/regions.h"

namespace trifold {

// The results that a head of a task shows to a TensorWatch.
struct ShownResult {
  std::string_view layer, what;
  bool operator==(const ShownResult&) const = default;
};
inline constexpr ShownResult kClassLogits{"classes", "logits"};       // [samples on this rank, classes]
inline constexpr ShownResult kAnswerBegin{"answer", "begin logits"};  // [b, T]
inline constexpr ShownResult kAnswerEnd{kAnswerBegin.layer, "end logits"};

// Predicts the class of a sample (batch.pair_labels) from the pooled first row after dropout, with PooledHead.
// Parameters pooler.{weight, bias} and classes.{weight, bias} [classes, C], [classes].
class ClassHead final : public Layer {
 public:
  ClassHead(BlockBuilder& builder, const ModelConfig& config);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;                   // [R, C] -> {}
  Tensor backward_input(Run& run, Tensor no_gradient, Saved& saved) const override;  // {} -> [R, C]
  void backward_weight(Run& run, Saved& saved) const override;

 private:
  PooledHead head_;
  SlotId x_;
};

// Predicts where in a sample an answer begins and ends: two logits for each row, x . w_begin and x . w_end, each with a
// softmax over all positions of the sample. The loss is the mean of the two cross entropies with batch.answer_begin and
// batch.answer_end. Parameter answer.weight [2, C]; there is no bias, because the softmax over positions would cancel
// it.
class SpanHead final : public Layer {
 public:
  SpanHead(BlockBuilder& builder, const ModelConfig& config);
  // Shows kAnswerBegin and kAnswerEnd on every rank of the tensor axis.
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;                   // [R, C] -> {}
  Tensor backward_input(Run& run, Tensor no_gradient, Saved& saved) const override;  // {} -> [R, C]
  void backward_weight(Run& run, Saved& saved) const override;

 private:
  // Logits [b, T] of one end, which become their gradient if a backward pass follows. total f64 [1] += the weighted
  // losses
  void find_losses(Run& run, Tensor logits, Tensor labels, Tensor total) const;
  // Context ranks have a part of the positions each: [R, 1] of this rank's <-> [b x T, 1] of all, in run.scratch.
  Tensor of_all_positions(Run& run, Tensor here) const;
  Tensor of_positions_here(Run& run, Tensor all) const;

  Region region_;
  ParamId weight_;
  SlotId x_;
  SlotId dlogits_[2];  // [R, 1] each
};

}  // namespace trifold
