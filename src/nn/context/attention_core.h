// AttentionCore: softmax attention over packed projections, on one rank or over context-parallel ranks. R = rows of the
// micro-batch (samples * positions) on this rank.
#pragma once

#include <optional>
#include <string>

#include "core/choices.h"
#include "nn/context/exchanged_heads.h"
#include "nn/context/gathered_keys.h"
#include "nn/context/key_ring.h"
#include "nn/context/window_keys.h"
#include "nn/layer.h"

namespace trifold {

// The attention heads of a model, and the heads that one rank of the tensor axis computes. Each of the `kv_heads` key
// and value heads serves heads / kv_heads query heads (Ainslie et al., "GQA", arXiv 2305.13245). Ranks hold consecutive
// query heads and the key heads that these read; if there are more ranks than key heads, consecutive ranks hold copies
// of one.
struct AttentionHeads {
  int64_t heads = 0, kv_heads = 0;     // in the model
  int64_t head_dim = 0;                // columns of a head in the packed projections
  int64_t value_dim = 0, key_dim = 0;  // columns of its value and its key; the rest of head_dim is zeros
  int64_t local = 0, local_kv = 0, first = 0;  // query and key heads on this rank, and its first query head

  // `all` query heads and `all_kv` key heads of `width` columns. Values have `values` columns and keys have `keys`, by
  // default `width`. Throws if heads cannot be cut evenly; the message names `name`.
  AttentionHeads(const Mesh& mesh, const std::string& name, int64_t all, int64_t all_kv, int64_t width,
                 std::optional<int64_t> values = {}, std::optional<int64_t> keys = {});
  int64_t packed_columns() const { return (local + 2 * local_kv) * head_dim; }
};

// The keys that a position attends to: itself and earlier positions in its document (batch.document_begin), or all
// positions of its sample except the padding after batch.lengths.
enum class AttentionSight { Causal, Both };

// The scores of attention, and the keys that they are computed for.
struct AttentionScores {
  AttentionSight sight = AttentionSight::Causal;
  int64_t left = -1, right = -1;  // a sliding window; as in Attention (ops/ops.h)
  double scale = 1;               // scores are multiplied by scale / sqrt(head_dim)
  double soft_cap = 0;            // as in Attention
  bool sinks = false;             // each head has a learned logit in its softmax (OpTable::attention_sinks)
};

// Context-parallel attention: nn/context/gathered_keys.h, exchanged_heads.h or key_ring.h; instead of the first and the
// last, window_keys.h if windows are short.
struct ContextShape {
  ContextExchange exchange = ContextExchange::AllGather;
  int threads = 1;  // the largest number of threads that a rank computes attention with
};

// Softmax attention over packed projections, [R, (local + 2 local_kv) * head_dim] -> [R, local * value_dim].
// The operation's outputs have head_dim columns; if value_dim is less, this layer removes the zeros. With sinks, which
// need values of head_dim columns, it has the parameter <name>.sinks, [heads].
//
// With Run::key_cache, qkv has the new positions of one sample, whose keys and values join those in the cache; only
// causal attention on one context rank can do that.
class AttentionCore final : public Layer {
 public:
  AttentionCore(BlockBuilder& builder, const std::string& name, const AttentionHeads& heads, double dropout,
                const AttentionScores& scores = {}, ContextShape context = {});
  Tensor forward(Run& run, Tensor qkv, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dout, Saved& saved) const override;
  void backward_weight(Run& run, Saved& saved) const override;

 private:
  Attention shape(const Run& run) const;
  // Declares the rows that a cache keeps, or says why there can be none.
  void declare_cache(BlockBuilder& builder);
  bool drops_zeros() const { return heads_.value_dim != heads_.head_dim; }
  // The sinks of the heads that this rank computes attention of, and those elements of a tensor of all local heads.
  Tensor sinks_here(Run& run) const { return here(run.weight(*sinks_)); }
  Tensor here(Tensor of_heads) const;
  // Computes the gradient of the sinks, which backward_weight adds, from the gradient of the saved output.
  void keep_sink_gradient(Run& run, Tensor dout, Saved& saved) const;
  void backward_whole(Run& run, Tensor dqkv, Tensor dout, Saved& saved) const;
  void forward_here(Run& run, Tensor out, Tensor qkv, Saved& saved) const;
  void forward_cached(Run& run, Tensor out, Tensor lse, Tensor qkv, Attention attention) const;
  void forward_exchanging(Run& run, Tensor out, Tensor qkv, Saved& saved) const;
  void backward_here(Run& run, Tensor dqkv, Tensor dout, Saved& saved) const;
  void backward_exchanging(Run& run, Tensor dqkv, Tensor dout, Saved& saved) const;

  std::string name_;
  AttentionHeads heads_;
  double dropout_;
  AttentionScores scores_;
  PhiloxKey key_;
  std::optional<ParamId> sinks_;
  // Set is one of these if positions are cut, otherwise none; and for a window, keys of windows besides keys_ or ring_.
  std::optional<WindowKeys> window_;
  std::optional<GatheredKeys> keys_;
  std::optional<ExchangedHeads> exchanged_;
  std::optional<KeyRing> ring_;
  std::optional<CachedRowsId> cached_;  // keys and values, [position, 2 local_kv * head_dim]
  SlotId qkv_, out_, lse_;
  std::optional<SlotId> dsinks_;  // with sinks, from backward_input to backward_weight
};

}  // namespace trifold
