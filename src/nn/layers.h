// The layers that are the same on every rank of the tensor axis: normalisation, activation, dropout,
// attention core. R = rows of the micro-batch (samples * positions) that are here, C = width.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "nn/exchanged_heads.h"
#include "nn/gathered_keys.h"
#include "nn/layer.h"

namespace trifold {

enum class NormKind { Layer, Rms };

// Over the last dim, of C numbers:
//   Layer  y = (x - mean) * rstd * gain + bias, rstd from the variance (Ba et al., arXiv 1607.06450);
//   Rms    y = x * rstd * gain, rstd from the mean of the squares (Zhang & Sennrich, arXiv 1910.07467).
// Parameters <name>.gain and, of Layer, <name>.bias, [C].
class Norm final : public Layer {
 public:
  // `inside`: what is normalised is a part of each row, inside a region (tensor_parallel/regions.h).
  Norm(BlockBuilder& builder, const std::string& name, int64_t width, NormKind kind, double eps,
       bool inside = false);
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;          // [R, C] -> [R, C]
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // [R, C] -> [R, C]
  void backward_weight(Run& run, Saved& saved) const override;
  Tensor backward(Run& run, Tensor dy, Saved& saved) const override;
  // backward_input and backward plus `residual` [R, C], for a caller who shows the sum.
  Tensor backward_input_added(Run& run, Tensor dy, Tensor residual, Saved& saved) const;
  Tensor backward_added(Run& run, Tensor dy, Tensor residual, Saved& saved) const;
  // Forward into a `y` [R, C] of the caller's; the statistics are in run.keep. Also as its two steps, for a
  // caller who takes more from there: the first takes the statistics, the second fills them and y.
  void forward_to(Run& run, Tensor y, Tensor x, Saved& saved) const {
    take_statistics(run, x.elements() / width_, saved);
    apply(run, y, x, saved);
  }
  void take_statistics(Run& run, int64_t rows, Saved& saved) const;
  void apply(Run& run, Tensor y, Tensor x, Saved& saved) const;
  // The forward of `saved`'s input once more: y and the saved statistics, in run.keep.
  Tensor repeat(Run& run, Saved& saved) const { return forward(run, saved[x_], saved); }

 private:
  bool adds_to_gradients(const Run& run) const {
    return kind_ == NormKind::Layer ? run.adds_to(gain_, bias_) : run.adds_to(gain_);
  }

  std::string name_;
  NormKind kind_;
  int64_t width_;
  double eps_;
  ParamId gain_, bias_;
  SlotId x_, mean_, rstd_, dy_;
};

enum class ActivationKind { Gelu, GeluErf, Swiglu };

// Gelu: y = gelu(x), tanh form, [R, F] -> [R, F]; GeluErf: the same with erf. Swiglu: y = silu(gate) * up,
// [R, 2F] = [gate | up] -> [R, F].
class Activation final : public Layer {
 public:
  Activation(BlockBuilder& builder, std::string name, ActivationKind kind)
      : name_(std::move(name)), kind_(kind), x_(builder.slot()) {}
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // may overwrite dy
  void backward_weight(Run&, Saved&) const override {}
  Tensor repeat(Run& run, Saved& saved) const { return forward(run, saved[x_], saved); }

  // For a layer beside it that computes this one's parts along with its own.
  ActivationKind kind() const { return kind_; }
  Tensor input(const Saved& saved) const { return saved[x_]; }
  void take_over(Run& run, Tensor x, Tensor y, Saved& saved) const;
  void show_gradient(Run& run, Tensor dx) const { run.show(name_, "input gradient", dx); }

 private:
  std::string name_;
  ActivationKind kind_;
  SlotId x_;
};

// y = residual + dropout(x). The mask is keyed by (seed, name, global sample, position, column): it repeats
// itself in backward without being saved, and is the same on every mesh. The residual's gradient is dy
// itself; `backward_input` gives the gradient of x, which is dy where nothing is dropped.
class DropoutAdd {
 public:
  DropoutAdd(BlockBuilder& builder, const std::string& name, double probability)
      : name_(name),
        probability_(probability),
        row_part_(builder.row_part()),
        key_(philox_key(builder.seed(), name)) {}
  Tensor forward(Run& run, Tensor residual, Tensor x) const;             // [R, C], [R, C] -> [R, C]
  void forward_to(Run& run, Tensor y, Tensor residual, Tensor x) const;  // into a y of the caller's
  Tensor backward_input(Run& run, Tensor dy) const;                      // [R, C] -> [R, C]
  // For a layer that adds the residual as it writes x, where nothing is dropped.
  bool drops(const Run& run) const { return probability_ > 0 && run.training; }
  void show_sum(Run& run, Tensor y) const { run.show(name_, "output", y); }

 private:
  std::string name_;
  double probability_;
  int row_part_;
  PhiloxKey key_;
};

// The attention heads of a model, and those of them that one rank of the tensor axis computes. `kv_heads` key
// and value heads each serve heads / kv_heads query heads (Ainslie et al., "GQA", arXiv 2305.13245). Ranks
// hold query heads in order, and the key heads that those read: where there are more ranks than key heads,
// ranks that follow each other hold copies of one.
struct AttentionHeads {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;  // of the model
  int64_t local = 0, local_kv = 0, first = 0;     // of this rank

  // `all` heads of the model with `all_kv` key heads, each of `width` numbers. Throws where they cannot be
  // cut evenly; the message names `name`.
  AttentionHeads(const Mesh& mesh, const std::string& name, int64_t all, int64_t all_kv, int64_t width);
  int64_t packed_columns() const { return (local + 2 * local_kv) * head_dim; }
};

// What a position looks at: itself and those before it in its document (batch.document_begin), or all of its
// sample but the padding behind batch.lengths.
enum class AttentionSight { Causal, Both };

// How ranks that positions are cut over share them for attention: nn/gathered_keys.h, nn/exchanged_heads.h.
enum class ContextSharing { GatherKeys, ExchangeHeads };

// Softmax attention over packed projections, [R, (local + 2 local_kv) * head_dim] -> [R, local * head_dim].
// Scores are multiplied by score_scale / sqrt(head_dim).
class AttentionCore final : public Layer {
 public:
  AttentionCore(BlockBuilder& builder, const std::string& name, const AttentionHeads& heads, double dropout,
                AttentionSight sight = AttentionSight::Causal, double score_scale = 1,
                ContextSharing sharing = ContextSharing::GatherKeys);
  Tensor forward(Run& run, Tensor qkv, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dout, Saved& saved) const override;
  void backward_weight(Run&, Saved&) const override {}

 private:
  Attention shape(const Run& run) const;
  void forward_gathering(Run& run, Tensor out, Tensor qkv, Saved& saved) const;
  void forward_exchanging(Run& run, Tensor out, Tensor qkv, Saved& saved) const;
  void backward_gathering(Run& run, Tensor dqkv, Tensor dout, Saved& saved) const;
  void backward_exchanging(Run& run, Tensor dqkv, Tensor dout, Saved& saved) const;

  std::string name_;
  AttentionHeads heads_;
  double dropout_;
  AttentionSight sight_;
  double score_scale_;
  PhiloxKey key_;
  // At most one of them, and none where positions are not cut.
  std::optional<GatheredKeys> keys_;
  std::optional<ExchangedHeads> exchanged_;
  SlotId qkv_, out_, lse_;
};

}  // namespace trifold
