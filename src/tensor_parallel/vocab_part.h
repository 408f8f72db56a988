// The output layer and its cross entropy in parts over the vocabulary, each a block of its own that the pipeline places
// like a layer (after Yeung et al., "Balancing pipeline parallelism with vocabulary parallelism", arXiv 2411.05288;
// docs/decisions/0031). V = padded vocabulary, K parts, C = width, R = rows of the micro-batch; Ro = R, or R/tp under
// sequence parallelism.
//
// Parts follow one another. Forward passes on x and, for each row, the statistics of the logits so far; with the last
// part they are those of whole rows, and it adds up the losses. Backward returns them, with the sum of the parts'
// gradients of x so far. A part keeps its logits [R, V/(K tp)] from forward to backward, where their gradient replaces
// them. The sums are in the order of the parts wherever they are computed.
#pragma once

#include <string>
#include <utility>

#include "nn/layer.h"
#include "nn/layers.h"
#include "nn/row_numbers.h"
#include "tensor_parallel/regions.h"
#include "tensor_parallel/vocab_statistics.h"

namespace trifold {

// One part of several.
struct PartPlace {
  int index = 0;
  int parts = 1;
  bool first() const { return index == 0; }
  bool last() const { return index + 1 == parts; }
};

class VocabPart final : public Layer {
 public:
  // `weight`: its rows of [V, C], equal parts of which all parts have, cut over the tensor ranks; a parameter of its own
  // or a second use of a part of the token embedding. Ids from `vocab` on are padding.
  VocabPart(BlockBuilder& builder, std::string name, ParamId weight, int64_t vocab, PartPlace place);

  // Numbers that travel with x, in the type of sums, for each of the R rows.
  static constexpr int64_t kRowNumbers = VocabStatistics::kNumbers;

  // x [Ro, C] with statistics, which the first part does not read -> the same, or {} from the last part. The
  // statistics are updated in place.
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;
  // {} for the last part, or dx of the later parts [Ro, C] with the final statistics -> the same with this part's, or
  // from the first part dx [Ro, C] alone.
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;
  void backward_weight(Run& run, Saved& saved) const override;

  // The tensor for x of the first part, with room for statistics, in `arena`. `like` is [Ro, C].
  WithNumbers take(Run& run, Arena& arena, Tensor like) const;

 private:
  WithNumbers with_numbers(Run& run, Tensor all) const;
  void find_logits(Run& run, Tensor x, const VocabStatistics& all, Tensor logits) const;
  void add_losses(Run& run, const VocabStatistics& all) const;
  void add_input_gradient(Run& run, Tensor dx, Tensor later, Tensor logits) const;

  std::string name_;
  Region region_;
  PartPlace place_;
  int64_t vocab_;
  int64_t first_id_;  // first token id whose column is here
  ParamId weight_;
  SlotId x_, logits_, statistics_;
};

// The first part, which follows the norm of its input.
class NormedVocabPart final : public Layer {
 public:
  NormedVocabPart(Norm norm, VocabPart part) : norm_(std::move(norm)), part_(std::move(part)) {}
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [Ro, C] -> that with statistics
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // the latter -> [Ro, C]
  void backward_weight(Run& run, Saved& saved) const override;

 private:
  Norm norm_;
  VocabPart part_;
};

}  // namespace trifold
