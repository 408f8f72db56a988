// Token embedding and output loss with the vocabulary cut over the tensor axis (Shoeybi et al., arXiv
// 1909.08053, section 3). V = padded vocabulary, C = width, R = rows of the micro-batch; Ro = R, or R/tp
// under sequence parallelism (tensor_parallel/regions.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "nn/layer.h"
#include "tensor_parallel/regions.h"
#include "tensor_parallel/vocab_statistics.h"

namespace trifold {

// The parts, over the vocabulary, of a table of token vectors that a layer has.
struct TokenParts {
  std::vector<int> own = {0};
  int parts = 1;  // of the whole table, of equal size
};

// y[r] = tokens[batch.tokens[r]] + positions[batch.positions[r]]. Parameters <name>.tokens.weight [V, C],
// with V cut over the axis, and <name>.positions.weight [P, C], whole; with P = 0 there is no position term.
// With `types` token types, types[batch.token_types[r]] of <name>.types.weight [types, C] is added too.
//
// The token vectors can be in parts over the vocabulary, each a parameter, of which a layer has some or none: tokens of
// other parts count as zero. Several such layers, one after the other, each on the rank that computes with the same rows
// in its part of the head (vocab_part.h), make one embedding: each adds what it has found to the sum so far, in place.
class VocabEmbedding final : public Layer {
 public:
  VocabEmbedding(BlockBuilder& builder, const std::string& name, int64_t padded_vocab, int64_t positions,
                 int64_t width, Init init, int64_t types = 0, const TokenParts& parts = {});
  // {}, or the sum of earlier layers [Ro, C] -> [Ro, C]
  Tensor forward(Run& run, Tensor earlier, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [Ro, C] -> itself
  void backward_weight(Run& run, Saved& saved) const override;
  // The parts that it has, in the order of TokenParts::own.
  std::vector<ParamId> tokens() const;

 private:
  struct TokenRows {
    ParamId weight;
    int64_t first_id;  // first token id whose row is here
  };
  // A whole table, indexed with this rank's rows (`own_rows`) of a tensor of the batch.
  struct Table {
    ParamId weight;
    Tensor Batch::*ids;
  };

  void look_up(Run& run, Tensor y) const;

  std::string name_;
  Region region_;
  int64_t width_;
  std::vector<TokenRows> tokens_;
  std::vector<Table> tables_;
  SlotId dy_;
};

// logits = x E^T (+ bias), then the cross entropy with batch.labels. E [V, C], with V cut over the axis, is
// the head's own weight or a second use of the token embedding; the optional bias [V] is cut the same way.
// Adds the weighted sum of the losses to run.loss_sum and the weights to run.weight_sum; the gradient is that
// of run.loss_scale * loss_sum.
//
// The logits [R, V] are never stored as a whole: rows are processed in chunks, and if a backward follows,
// forward turns each chunk's logits into their gradient and immediately computes dx, which is kept, and E's
// gradient (the exception in nn/layer.h, docs/decisions/0006).
class VocabCrossEntropy final : public Layer {
 public:
  // The name under which a TensorWatch sees the losses of this rank's rows [R], not weighted, on every tensor rank.
  static constexpr std::string_view kLosses = "losses";
  // `chunk_rows` 0: as many rows as make a chunk's logits, over all ranks, some tens of MiB.
  VocabCrossEntropy(BlockBuilder& builder, std::string name, ParamId weight, int64_t vocab,
                    int64_t chunk_rows = 0, std::optional<ParamId> bias = {});
  // `chunk_rows` for a device: some thousands. E's gradient is read and written once per chunk, which, with
  // fewer rows, takes a device as long as the product itself.
  static int64_t device_chunk_rows(int64_t vocab);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;                   // [Ro, C] -> {}
  Tensor backward_input(Run& run, Tensor no_gradient, Saved& saved) const override;  // {} -> [Ro, C]
  void backward_weight(Run&, Saved&) const override {}                               // forward did it
  bool adds_in_forward() const override { return true; }
  // This rank's part of the logits, [R, V/tp]: for sampling. Values in columns of padding are meaningless.
  // Throws under sequence parallelism.
  Tensor logits(Run& run, Tensor x) const;

 private:
  // Rows [begin, end) of the micro-batch.
  struct Chunk {
    int64_t begin, end;
    Tensor of(Tensor all) const { return all.rows(begin, end); }
  };
  // x [n, C] -> losses [n], and, if a backward follows, dx [n, C] and E's gradient.
  void run_chunk(Run& run, const Chunk& chunk, Tensor x, Tensor losses, Tensor dx) const;
  void find_logits(Run& run, Tensor logits, Tensor x) const;

  std::string name_;
  Region region_;
  int64_t vocab_;  // ids from here on are padding
  int64_t chunk_rows_;
  int64_t first_id_;  // first token id whose column is here
  ParamId weight_;
  std::optional<ParamId> bias_;
  SlotId dx_;
};

}  // namespace trifold
