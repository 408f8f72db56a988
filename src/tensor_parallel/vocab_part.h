// VocabPart: one of K parts of the output layer and its cross entropy, cut over the vocabulary. Each part is a block
// that the pipeline places like a layer (after Yeung et al., "Balancing pipeline parallelism with vocabulary
// parallelism", arXiv 2411.05288; docs/decisions/0031). V = padded vocabulary, C = width, R = rows of the micro-batch;
// Ro = R, or R/tp under sequence parallelism.
//
// Parts run in order. Forward passes on x and, for each row, the statistics of the logits so far (vocab_statistics.h).
// The last part completes the statistics and sums the losses. Backward runs in reverse order and passes on the final
// statistics and the sum of the parts' gradients of x so far. A part keeps its logits [R, V/(K tp)] from forward to
// backward, where their gradient overwrites them. Sums are in the order of the parts, whichever ranks compute them.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "nn/layer.h"
#include "nn/layers.h"
#include "nn/row_statistics.h"
#include "nn/samples/sample_loss.h"
#include "tensor_parallel/logits.h"
#include "tensor_parallel/regions.h"
#include "tensor_parallel/vocab_statistics.h"

namespace trifold {

// Part `index` of `parts` equal parts.
struct PartIndex {
  int index = 0;
  int parts = 1;
  bool first() const { return index == 0; }
  bool last() const { return index + 1 == parts; }
};

class VocabPart final : public Layer {
 public:
  // `weight`: this part's V/K rows of [V, C], cut over the tensor ranks; a parameter of the head, or a second use of a
  // part of the token embedding. Ids from `vocab` on are padding. With `samples`, the loss is of samples; every part
  // finds the factors of their gradients from the final statistics.
  VocabPart(BlockBuilder& builder, std::string name, ParamId weight, int64_t vocab, PartIndex part,
            LogitForm form = {}, std::unique_ptr<SampleLoss> samples = nullptr);

  // The number of statistics that are passed on with x for each of the R rows, in accumulate_type.
  static constexpr int64_t kRowStatistics = VocabStatistics::kCount;

  // x [Ro, C] with statistics, which the first part does not read -> x with statistics, or {} from the last part.
  // Updates the statistics in place.
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;
  // The later parts' dx [Ro, C] with the final statistics, or {} for the last part -> dx including this part's, with
  // statistics; the first part returns dx [Ro, C] alone.
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;
  void backward_weight(Run& run, Saved& saved) const override;

  // Takes a tensor [Ro, C], the shape of `like`, with statistics from `arena`: for the input of the first part.
  WithStatistics take(Run& run, Arena& arena, Tensor like) const;

 private:
  WithStatistics with_statistics(Run& run, Tensor all) const;
  void find_logits(Run& run, Tensor x, const VocabStatistics& all, Tensor logits) const;
  // Overwrites the logits by their gradient.
  void find_gradient(Run& run, const VocabStatistics& all, Tensor logits) const;
  void add_losses(Run& run, const VocabStatistics& all) const;
  // The gradient of the logits of rows [begin, end) of the micro-batch. `factors` if the loss is of samples.
  void find_gradient(Run& run, const VocabStatistics& all, Tensor gradient, Tensor logits, int64_t begin,
                     int64_t end, Tensor factors) const;
  void add_input_gradient(Run& run, Tensor dx, Tensor later, Tensor logits) const;

  std::string name_;
  Region region_;
  PartIndex part_;
  int64_t vocab_;
  int64_t first_id_;  // first token id of this rank's rows of `weight`
  ParamId weight_;
  LogitForm form_;
  std::unique_ptr<SampleLoss> samples_;
  SlotId x_, logits_, statistics_;
};

// The final norm, followed by the first part.
class NormedVocabPart final : public Layer {
 public:
  NormedVocabPart(Norm norm, VocabPart part) : norm_(std::move(norm)), part_(std::move(part)) {}
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;  // [Ro, C] -> [Ro, C] with statistics
  Tensor backward_input(Run& run, Tensor dy,
                        Saved& saved) const override;  // [Ro, C] with statistics -> [Ro, C]
  void backward_weight(Run& run, Saved& saved) const override;

 private:
  Norm norm_;
  VocabPart part_;
};

}  // namespace trifold
