// Layers whose computation is not cut over the tensor axis: normalisation, activation, dropout, attention core. R =
// rows of the micro-batch (samples * positions) on this rank, C = width.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "core/choices.h"
#include "nn/context/exchanged_heads.h"
#include "nn/context/gathered_keys.h"
#include "nn/context/key_ring.h"
#include "nn/context/window_keys.h"
#include "nn/layer.h"

namespace trifold {

// Normalises each row of C elements:
//   LayerNorm  y = (x - mean) * rstd * gain + bias, rstd from the variance (Ba et al., arXiv 1607.06450);
//   RmsNorm    y = x * rstd * gain, rstd from the mean of the squares (Zhang & Sennrich, arXiv 1910.07467).
// Parameters <name>.gain and, for LayerNorm, <name>.bias, [C].
class Norm final : public Layer {
 public:
  // `inside`: the layer is inside a region, so its input has some columns of each row (tensor_parallel/regions.h).
  Norm(BlockBuilder& builder, const std::string& name, int64_t width, Normalization kind, double eps,
       bool inside = false);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [R, C] -> [R, C]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [R, C] -> [R, C]
  void backward_weight(Run& run, Saved& saved) const override;
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override;
  // backward_input and backward, with `residual` [R, C] added to the result. The caller shows the sum (Run::show).
  Tensor backward_input_added(Run& run, Tensor dy, Tensor residual, Saved& saved) const;
  Tensor backward_added(Run& run, Tensor dy, Tensor residual, Saved& saved) const;
  // Forward into the caller's `y` [R, C], with statistics in run.keep. It has two steps, which a caller may call itself
  // to take other memory in between: take_statistics takes memory, and `apply` computes the statistics and y.
  void forward_to(Run& run, Tensor y, Tensor x, Saved& saved) const {
    take_statistics(run, x.elements() / width_, saved);
    apply(run, y, x, saved);
  }
  void take_statistics(Run& run, int64_t rows, Saved& saved) const;
  void apply(Run& run, Tensor y, Tensor x, Saved& saved) const;
  // Repeats the forward of the saved input: y and the saved statistics are in run.keep.
  Tensor repeat(Run& run, Saved& saved) const { return forward(run, saved[x_], saved); }

 private:
  bool adds_to_gradients(const Run& run) const {
    return kind_ == Normalization::LayerNorm ? run.adds_to(gain_, bias_) : run.adds_to(gain_);
  }

  std::string name_;
  Normalization kind_;
  int64_t width_;
  double eps_;
  ParamId gain_, bias_;
  SlotId x_, mean_, rstd_, dy_;
};

// y = f(x), [R, F] -> [R, F], or with Swiglu y = silu(gate) * up, [R, 2F] = [gate | up] -> [R, F].
class Activation final : public Layer {
 public:
  Activation(BlockBuilder& builder, std::string name, ActivationKind kind)
      : name_(std::move(name)), kind_(kind), x_(builder.slot()) {}
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // may overwrite dy
  void backward_weight(Run&, Saved&) const override {}
  Tensor repeat(Run& run, Saved& saved) const { return forward(run, saved[x_], saved); }

  // For an adjacent layer that fuses this activation with its own operations.
  ActivationKind kind() const { return kind_; }
  Tensor input(const Saved& saved) const { return saved[x_]; }
  void take_over(Run& run, Tensor x, Tensor y, Saved& saved) const;
  void show_gradient(Run& run, Tensor dx) const { run.show(name_, "input gradient", dx); }

 private:
  std::string name_;
  ActivationKind kind_;
  SlotId x_;
};

// y = residual + dropout(x). The mask is keyed by (seed, name, global sample, position, column), so it is the same on
// every mesh, and backward regenerates it. The residual's gradient is dy itself; `backward_input` returns the gradient
// of x, which is dy if nothing is dropped.
class DropoutAdd {
 public:
  DropoutAdd(BlockBuilder& builder, const std::string& name, double probability)
      : name_(name),
        probability_(probability),
        row_part_(builder.row_part()),
        key_(philox_key(builder.seed(), name)) {}
  Tensor forward(Run& run, Tensor residual, Tensor x) const;             // [R, C], [R, C] -> [R, C]
  void forward_to(Run& run, Tensor y, Tensor residual, Tensor x) const;  // into the caller's y
  Tensor backward_input(Run& run, Tensor dy) const;                      // [R, C] -> [R, C]
  // For a layer that fuses the residual addition with writing x, if nothing is dropped.
  bool drops(const Run& run) const { return probability_ > 0 && run.training; }
  void show_sum(Run& run, Tensor y) const { run.show(name_, "output", y); }

 private:
  std::string name_;
  double probability_;
  int row_part_;
  PhiloxKey key_;
};

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
class AttentionCore final : public Layer {
 public:
  AttentionCore(BlockBuilder& builder, const std::string& name, const AttentionHeads& heads, double dropout,
                const AttentionScores& scores = {}, ContextShape context = {});
  Tensor forward(Run& run, Tensor qkv, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dout, Saved& saved) const override;
  void backward_weight(Run& run, Saved& saved) const override;

 private:
  Attention shape(const Run& run) const;
  bool drops_zeros() const { return heads_.value_dim != heads_.head_dim; }
  // The sinks of the heads that this rank computes attention of, and those elements of a tensor of all local heads.
  Tensor sinks_here(Run& run) const { return here(run.weight(*sinks_)); }
  Tensor here(Tensor of_heads) const;
  // Computes the gradient of the sinks, which backward_weight adds, from the gradient of the saved output.
  void keep_sink_gradient(Run& run, Tensor dout, Saved& saved) const;
  void backward_whole(Run& run, Tensor dqkv, Tensor dout, Saved& saved) const;
  void forward_here(Run& run, Tensor out, Tensor qkv, Saved& saved) const;
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
  SlotId qkv_, out_, lse_;
  std::optional<SlotId> dsinks_;  // with sinks, from backward_input to backward_weight
};

}  // namespace trifold
