// Layers whose computation is not cut over the tensor axis: normalisation, activation. R =
// rows of the micro-batch (samples * positions) on this rank, C = width.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "core/choices.h"
#include "nn/layer.h"

namespace trifold {

// The form of a norm besides its width.
struct NormForm {
  Normalization kind = Normalization::LayerNorm;
  double eps = 1e-5;
  double gain_offset = 0;
  bool bias = true;  // LayerNorm has one

  bool has_bias() const { return bias && kind == Normalization::LayerNorm; }
};
// The gains of a new norm: constant, and 1 without an offset.
Init initial_gain(const NormForm& form);

// Normalises each row of C elements:
//   LayerNorm  y = (x - mean) * rstd * gain + bias, rstd from the variance (Ba et al., arXiv 1607.06450);
//   RmsNorm    y = x * rstd * gain, rstd from the mean of the squares (Zhang & Sennrich, arXiv 1910.07467).
// With a gain offset the factor of a column is gain + offset, and is 1 at first (zero-centred gains, offset 1).
// Parameters <name>.gain and, for LayerNorm unless its form has no bias, <name>.bias, [C].
class Norm final : public Layer {
 public:
  // `inside`: the layer is inside a region, so its input has some columns of each row (tensor_parallel/regions.h).
  Norm(BlockBuilder& builder, const std::string& name, int64_t width, const NormForm& form,
       bool inside = false);
  Norm(BlockBuilder& builder, const std::string& name, int64_t width, Normalization kind, double eps)
      : Norm(builder, name, width, NormForm{kind, eps}) {}
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
  // As forward; y is narrow if `in_8bit` (Run::take), for layers that read it as a factor of products only.
  Tensor forward_factor(Run& run, Tensor x, Saved& saved, bool in_8bit) const;
  // Whether a backward computes gradients of its parameters.
  bool trains(const Run& run) const { return run.trains(gain_); }
  // Repeats the forward of the saved input: y and the saved statistics are in run.keep.
  Tensor repeat(Run& run, Saved& saved, bool in_8bit = false) const {
    return forward_factor(run, saved[x_], saved, in_8bit);
  }

 private:
  bool adds_to_gradients(const Run& run) const {
    return form_.has_bias() ? run.adds_to(gain_, bias_) : run.adds_to(gain_);
  }
  // The bias, or zeros in scratch without one; and where its gradient goes, which without one is not read.
  Tensor bias_or_zeros(Run& run) const;
  Tensor bias_gradient(Run& run) const;

  std::string name_;
  NormForm form_;
  int64_t width_;
  ParamId gain_, bias_;
  SlotId x_, mean_, rstd_, dy_;
};

// y = f(x), [R, F] -> [R, F], or with a gate y = f(gate) * up, [R, 2F] = [gate | up] -> [R, F].
class Activation final : public Layer {
 public:
  Activation(BlockBuilder& builder, std::string name, const ActivationForm& form)
      : name_(std::move(name)), form_(form), x_(builder.slot()) {}
  Tensor forward(Run& run, Tensor x, Saved& saved) const override;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const override;  // may overwrite dy
  void backward_weight(Run&, Saved&) const override {}
  // As forward and backward_input, into the caller's y and dx, which are the forms that their readers ask for.
  void forward_to(Run& run, const Forms& y, Tensor x, Saved& saved) const;
  void backward_input_to(Run& run, const Forms& dx, Tensor dy, Saved& saved) const;
  // The columns of y for x of `columns` columns.
  int64_t columns_out(int64_t columns) const { return form_.gated() ? columns / 2 : columns; }
  // Whether dx [R, columns] can be narrow: no block of a scale has numbers of both halves.
  bool can_narrow_gradient(int64_t columns) const {
    return !form_.gated() || columns % (2 * kScaleBlock) == 0;
  }
  // Repeats the forward of the saved input into the caller's y.
  void repeat_to(Run& run, const Forms& y, Saved& saved) const { forward_to(run, y, saved[x_], saved); }

  // For an adjacent layer that fuses this activation with its own operations.
  ActivationKind kind() const { return form_.kind; }
  Tensor input(const Saved& saved) const { return saved[x_]; }
  void take_over(Run& run, Tensor x, const Forms& y, Saved& saved) const;
  void show_gradient(Run& run, Tensor dx) const { run.show(name_, "input gradient", dx); }

 private:
  std::string name_;
  ActivationForm form_;
  SlotId x_;
};

}  // namespace trifold
