#include "models/feed_forward.h"

#include <optional>

#include "models/transformer.h"
#include "nn/token_gate.h"
#include "tensor_parallel/tiled_mlp.h"

namespace trifold {

namespace {

bool has_bias(const TransformerShape& shape) { return shape.bias || shape.mlp_bias; }

ExpertsShape with_biases(const TransformerShape& shape) {
  ExpertsShape experts = shape.experts;
  experts.bias = has_bias(shape);
  return experts;
}

// down(activation(up(x)))
class OneNetwork final : public FeedForward {
 public:
  OneNetwork(BlockBuilder& builder, const std::string& name, const TransformerShape& shape, int64_t ffn)
      : selective_(shape.recompute_selective),
        up_(builder, name + ".up", shape.activation.gated() ? 2 : 1, ffn, shape.width,
            {Init::Kind::Normal, shape.init_std}, has_bias(shape)),
        activation_(builder, name + ".activation", shape.activation),
        down_(builder, name + ".down", shape.width, ffn, {Init::Kind::Normal, shape.output_init_std},
              has_bias(shape)) {}

  Tensor forward_added(Run& run, Arena& recomputable, const ResidualAdd& add, Tensor residual, Tensor x,
                       Saved& saved) const override {
    const Forms inner = inner_of(run, recomputable, x, saved);
    return down_.forward_added(run, run.output(), add, residual, inner, saved);
  }

  // f(x), in scratch.
  Tensor forward(Run& run, Arena& recomputable, Tensor x, Saved& saved) const {
    const Forms inner = inner_of(run, recomputable, x, saved);
    return down_.forward_in(run, run.scratch, inner, saved);
  }

  Tensor compute_backward(Run& run, Run& recompute_run, Tensor dy, FunctionRef<Tensor()> input, Saved& saved,
                          bool with_weights) const override {
    const Tensor z = activation_.input(saved);
    if (selective_ && down_.reads_input()) {
      const Forms inner = down_.take_repeated(run, *recompute_run.keep, z.row_count());
      activation_.repeat_to(recompute_run, inner, saved);
      down_.set_input(saved, is_present(inner.turned) ? inner.turned : inner.rows);
    }
    Forms du;
    if (up_.reads_narrow(run) && activation_.can_narrow_gradient(z.last_dim())) {
      du = up_.take_gradient(run, z.row_count());
      down_.backward_input_activated(run, du, activation_, dy, saved);
    } else {
      du = down_.backward_input_activated(run, activation_, dy, saved);
    }
    if (with_weights) down_.backward_weight(run, saved);
    if (selective_) up_.set_input(saved, input());  // repeats the norm's statistics too
    return with_weights ? up_.backward(run, du, saved) : up_.backward_input(run, du, saved);
  }

  void backward_weight(Run& run, Saved& saved) const override {
    down_.backward_weight(run, saved);
    up_.backward_weight(run, saved);
  }
  bool reads_input() const override { return up_.reads_input(); }
  bool reads_narrow(const Run& run) const override { return up_.reads_narrow(run); }

 private:
  // The activation's output, of which the forms that a backward reads are kept.
  Forms inner_of(Run& run, Arena& recomputable, Tensor x, Saved& saved) const {
    const Forms inner = down_.take_input(run, recomputable, up_.rows_inside(x.row_count()), selective_);
    up_.forward_activated(run, inner, activation_, x, saved);
    return inner;
  }

  bool selective_;
  ColumnLinear up_;
  Activation activation_;
  RowLinear down_;
};

// OneNetwork computed a tile of rows at a time; only the input is kept.
class TiledNetwork final : public FeedForward {
 public:
  TiledNetwork(BlockBuilder& builder, const std::string& name, const TransformerShape& shape)
      : selective_(shape.recompute_selective),
        mlp_(builder, name, shape.width, shape.ffn, shape.activation, has_bias(shape),
             {Init::Kind::Normal, shape.init_std}, {Init::Kind::Normal, shape.output_init_std},
             shape.mlp_tiles) {}

  Tensor forward_added(Run& run, Arena&, const ResidualAdd& add, Tensor residual, Tensor x,
                       Saved& saved) const override {
    return mlp_.forward_added(run, add, residual, x, saved);
  }

  Tensor compute_backward(Run& run, Run&, Tensor dy, FunctionRef<Tensor()> input, Saved& saved,
                          bool with_weights) const override {
    if (selective_) mlp_.set_input(saved, input());
    return with_weights ? mlp_.backward(run, dy, saved) : mlp_.backward_input(run, dy, saved);
  }

  void backward_weight(Run& run, Saved& saved) const override { mlp_.backward_weight(run, saved); }
  bool weight_backward_reads_weights() const override { return mlp_.weight_backward_reads_weights(); }

 private:
  bool selective_;
  TiledMlp mlp_;
};

// Experts, and optionally a shared expert, which may have a gate.
class ManyNetworks final : public FeedForward {
 public:
  ManyNetworks(BlockBuilder& builder, const std::string& name, const TransformerShape& shape)
      : selective_(shape.recompute_selective),
        experts_(builder, name, with_biases(shape), shape.width, shape.ffn, shape.activation,
                 {Init::Kind::Normal, shape.init_std}, {Init::Kind::Normal, shape.output_init_std}) {
    if (shape.shared_ffn > 0) shared_.emplace(builder, name + ".shared", shape, shape.shared_ffn);
    if (shape.shared_gate)
      shared_gate_.emplace(builder, name + ".shared.gate", shape.width,
                           Init{Init::Kind::Normal, shape.init_std});
  }

  Tensor forward_added(Run& run, Arena& recomputable, const ResidualAdd& add, Tensor residual, Tensor x,
                       Saved& saved) const override {
    if (!shared_) return experts_.forward_added(run, add, residual, x, {}, saved);
    const auto shared = [&] {
      const Tensor y = shared_->forward(run, recomputable, x, saved);
      if (shared_gate_) shared_gate_->forward(run, x, y, saved);
      return y;
    };
    return experts_.forward_added(run, add, residual, x, shared, saved);
  }

  // The experts and the shared expert read the same input, which is recomputed once.
  Tensor compute_backward(Run& run, Run& recompute_run, Tensor dy, FunctionRef<Tensor()> input, Saved& saved,
                          bool with_weights) const override {
    const Tensor x = selective_ ? input() : Tensor{};
    if (selective_) experts_.set_input(saved, x);
    const auto shared = [&] {
      return compute_backward_shared(run, recompute_run, dy, x, saved, with_weights);
    };
    const Experts::SharedExpert shared_expert = shared_ ? Experts::SharedExpert(shared) : std::nullopt;
    return with_weights ? experts_.backward(run, dy, shared_expert, saved)
                        : experts_.backward_input(run, dy, shared_expert, saved);
  }

  void backward_weight(Run& run, Saved& saved) const override {
    experts_.backward_weight(run, saved);
    if (shared_) shared_->backward_weight(run, saved);
    if (shared_gate_) shared_gate_->backward_weight(run, saved);
  }
  bool weight_backward_reads_weights() const override { return experts_.weight_backward_reads_weights(); }

 private:
  Tensor compute_backward_shared(Run& run, Run& recompute_run, Tensor dy, Tensor x, Saved& saved,
                                 bool with_weights) const {
    if (shared_gate_) {
      if (selective_) shared_gate_->set_input(saved, x);
      dy = shared_gate_->backward_input(run, dy, saved);
      if (with_weights) shared_gate_->backward_weight(run, saved);
    }
    const Tensor dx = shared_->compute_backward(
        run, recompute_run, dy, [&] { return x; }, saved, with_weights);
    if (shared_gate_) shared_gate_->add_input_gradient(run, dx, saved);
    return dx;
  }

  bool selective_;
  Experts experts_;
  std::optional<OneNetwork> shared_;
  std::optional<TokenGate> shared_gate_;
};

}  // namespace

std::unique_ptr<FeedForward> make_feed_forward(BlockBuilder& builder, const std::string& name,
                                               const TransformerShape& shape) {
  if (shape.experts.experts > 0) return std::make_unique<ManyNetworks>(builder, name, shape);
  if (shape.mlp_tiles > 1) return std::make_unique<TiledNetwork>(builder, name, shape);
  return std::make_unique<OneNetwork>(builder, name, shape, shape.ffn);
}

}  // namespace trifold
