// Heads for finetuning BERT on a task (Devlin et al., NAACL 2019, section 4): the last block, instead of BertHead.
// Losses are means over samples: each head adds the samples' weights to run.weight_sum. Only the first context rank
// adds losses and weights.
//
// R = rows of the micro-batch on this rank, C = width, b = samples, T = positions.
#pragma once

#include <string_view>

#include "models/bert.h"
#include "tensor_parallel/regions.h"

namespace trifold {

// Names under which heads of tasks show their results to a TensorWatch.
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
// softmax over all positions of the sample. The loss is the mean of the cross entropies with batch.answer_begin and
// batch.answer_end. Parameter answer.weight [2, C]; there is no bias, because a softmax over positions cancels it.
class SpanHead final : public Layer {
 public:
  SpanHead(BlockBuilder& builder, const ModelConfig& config);
  // Shows kAnswerBegin and kAnswerEnd on every rank of the tensor axis.
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;                   // [R, C] -> {}
  Tensor backward_input(Run& run, Tensor no_gradient, Saved& saved) const override;  // {} -> [R, C]
  void backward_weight(Run& run, Saved& saved) const override;

 private:
  // Overwrites logits [b, T] of the begin or the end with their gradient if a backward pass follows. total f64 [1] +=
  // the weighted losses.
  void find_losses(Run& run, Tensor logits, Tensor labels, Tensor total) const;
  // Converts between this context rank's positions [R, 1] and all positions [b x T, 1]; results are in run.scratch.
  Tensor of_all_positions(Run& run, Tensor local) const;
  Tensor of_positions_here(Run& run, Tensor all) const;

  Region region_;
  ParamId weight_;
  SlotId x_;
  SlotId dlogits_[2];  // [R, 1] each
};

}  // namespace trifold
