// Token embedding and output loss with the vocabulary cut over the tensor axis (Shoeybi et al., arXiv 1909.08053,
// section 3). V = padded vocabulary, C = width, R = rows of the micro-batch; Ro = R, or R/tp under sequence parallelism
// (tensor_parallel/regions.h).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "nn/layer.h"
#include "nn/samples/sample_loss.h"
#include "tensor_parallel/logits.h"
#include "tensor_parallel/regions.h"
#include "tensor_parallel/vocab_statistics.h"

namespace trifold {

// The parts of the table of token vectors that a layer has, if the table is cut over the vocabulary into equal parts.
struct TokenParts {
  std::vector<int> own = {0};  // indices of the layer's parts
  int parts = 1;               // number of parts of the whole table
};

// The tables that VocabEmbedding adds to the vectors of tokens.
struct AddedTables {
  int64_t positions = 0;        // P; 0: no table of positions
  int64_t position_offset = 0;  // O rows before the first position's, which belong to no position
  int64_t types = 0;            // types of tokens; 1: all tokens are of type 0; 0: no table of types
};

// y[r] = tokens[batch.tokens[r]] + positions[O + batch.positions[r]] + types[batch.token_types[r]]. Parameters
// <name>.tokens.weight [V, C], with V cut over the axis; <name>.positions.weight [O + P, C], whole, if P > 0; and
// <name>.types.weight [types, C], whole, if `types` > 0.
//
// The table of token vectors can be cut into parts, each a parameter. A layer has some parts or none; tokens of other
// parts add zero. An embedding can then be several layers, one after the other, each on the rank whose part of the head
// (vocab_part.h) uses the same rows; each adds the vectors that it has to the sum so far, in place.
class VocabEmbedding final : public Layer {
 public:
  VocabEmbedding(BlockBuilder& builder, const std::string& name, int64_t padded_vocab,
                 const AddedTables& added, int64_t width, Init init, const TokenParts& parts = {});
  // `earlier`: the sum of earlier layers [Ro, C], or {} -> [Ro, C]
  Tensor forward(Run& run, Tensor earlier, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [Ro, C] -> itself
  void backward_weight(Run& run, Saved& saved) const override;
  // The parameters of the layer's parts, in the order of TokenParts::own.
  std::vector<ParamId> tokens() const;

 private:
  struct TokenRows {
    ParamId weight;
    int64_t first_id;  // first token id of this rank's rows
  };
  // A whole table, indexed with this rank's rows (`own_rows`) of a tensor of the batch.
  struct Table {
    ParamId weight;
    Tensor Batch::*ids;
    int64_t first_id;  // the id of its first row
  };

  void look_up(Run& run, Tensor y) const;

  std::string name_;
  Region region_;
  int64_t width_;
  std::vector<TokenRows> tokens_;
  std::vector<Table> tables_;
  std::optional<ParamId> only_type_;  // one row, which all tokens add
  SlotId dy_;
};

// A loss of later labels, which is reported in addition to the model's loss.
struct LaterLoss {
  int later = 1;       // the labels are Batch::later_labels[later - 1]
  BatchValueId scale;  // factor of the loss's gradient, besides Run::loss_scale
  LossTermId term;     // += the weighted sum of the losses, which are not in Run::loss_sum
};

// logits = x E^T (+ bias), or in another form (logits.h), then the cross entropy with batch.labels. E [V, C], with V cut over the axis, is the head's
// own weight or a second use of the token embedding; the optional bias [V] is cut in the same way. Adds the weighted
// sum of the losses to run.loss_sum and the weights to run.weight_sum; backward computes the gradient of run.loss_scale
// * loss_sum.
//
// The logits [R, V] are never stored as a whole: rows are processed in chunks. If a backward follows, forward turns
// each chunk's logits into their gradient and immediately computes dx, which is kept, and E's gradient (the exception
// in nn/layer.h, docs/decisions/0006).
//
// With a SampleLoss, which needs the cross entropies of all rows before any gradient, forward computes the logits of
// each chunk twice if a backward follows.
class VocabCrossEntropy final : public Layer {
 public:
  // The name under which a TensorWatch sees the losses of this rank's rows [R], unweighted, on every tensor rank.
  static constexpr std::string_view kLosses = "losses";
  // And before the losses, in chunks of rows in order: the largest logit of each row, the sum of exp(logit - largest),
  // and its label's logit.
  static constexpr std::string_view kLargestLogits = "largest logits";
  static constexpr std::string_view kSums = "sums of exponentials";
  static constexpr std::string_view kLabelLogits = "logits of the labels";
  // `chunk_rows` 0: rows_of_chunk(vocab), whose logits over all ranks take some tens of MiB. Logits with a bias have no
  // other `form`. With `later`, the labels are not batch.labels. With `samples`, the loss is of samples; not with `later`.
  VocabCrossEntropy(BlockBuilder& builder, std::string name, ParamId weight, int64_t vocab,
                    int64_t chunk_rows = 0, std::optional<ParamId> bias = {}, LogitForm form = {},
                    std::optional<LaterLoss> later = {}, std::unique_ptr<SampleLoss> samples = nullptr);
  // `chunk_rows` for a device: some thousands, because E's gradient is read and written once for each chunk, which with
  // fewer rows takes as long as the product itself.
  static int64_t device_chunk_rows(int64_t vocab);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;                   // [Ro, C] -> {}
  Tensor backward_input(Run& run, Tensor no_gradient, Saved& saved) const override;  // {} -> [Ro, C]
  void backward_weight(Run&, Saved&) const override {}                               // done by forward
  bool adds_in_forward() const override { return true; }
  // This rank's columns of the logits, [R, V/tp], for sampling. Columns of padding are undefined. Throws under sequence
  // parallelism.
  Tensor logits(Run& run, Tensor x) const;

 private:
  // Rows [begin, end) of the micro-batch.
  struct Chunk {
    int64_t begin, end;
    Tensor of(Tensor all) const { return all.rows(begin, end); }
  };
  // x [n, C] -> losses [n] and, if dx has dims, dx [n, C] and E's gradient. `factors` of the
  // samples' gradients, f64 [samples], if the loss is of samples.
  void run_chunk(Run& run, const Chunk& chunk, Tensor x, Tensor losses, Tensor dx, Tensor factors) const;
  // Adds losses [R] to the sums of the run; overwrites them.
  void add_losses(Run& run, Tensor losses) const;
  // Computes losses [R] and the loss of the samples. Returns the factors of their gradients if a backward follows.
  Tensor add_sample_losses(Run& run, Tensor x, Tensor losses) const;
  // Calls body(part, factor) for parts of the chunk's rows, counted from its first, each with one factor of the gradient.
  template <class Body>
  void for_each_factor(const Run& run, const Chunk& chunk, Tensor factors, Body body) const;
  void find_logits(Run& run, Tensor logits, Tensor x) const;
  Tensor labels(const Run& run) const;
  Tensor loss_weights(const Run& run) const;
  Factor loss_factor(const Run& run) const {
    return later_ ? run.loss_factor(later_->scale) : run.loss_factor();
  }

  std::string name_;
  Region region_;
  int64_t vocab_;  // ids from here on are padding
  int64_t chunk_rows_;
  int64_t first_id_;  // first token id of this rank's columns
  ParamId weight_;
  std::optional<ParamId> bias_;
  LogitForm form_;
  std::optional<LaterLoss> later_;
  std::unique_ptr<SampleLoss> samples_;
  SlotId dx_;
};

}  // namespace trifold
