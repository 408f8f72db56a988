// ResidualAdd: the end of a part of a block, where its output joins the residual stream.
//   y = residual + dropout(multiplier * norm(x)), [R, C]
// The norm and the multiplier are optional. The dropout mask is keyed by (seed, name, global sample, position, column),
// so it is the same on every mesh, and backward regenerates it. The residual's gradient is dy itself.
#pragma once

#include <optional>
#include <string>

#include "nn/layers.h"

namespace trifold {

// The options of a ResidualAdd besides its dropout.
struct ResidualShape {
  double multiplier = 1;
  std::optional<Norm> norm = {};
};

class ResidualAdd {
 public:
  ResidualAdd(BlockBuilder& builder, const std::string& name, double dropout, ResidualShape shape = {})
      : name_(name),
        dropout_(dropout),
        shape_(std::move(shape)),
        row_part_(builder.row_part()),
        key_(philox_key(builder.seed(), name)) {
    if (shape_.norm) x_ = builder.slot();
  }

  // Takes the memory in run.keep that backward reads, for x [rows, columns]; called before the forward of the layer
  // that computes x, whose temporaries lie above it.
  void reserve(Run& run, int64_t rows, int64_t columns, Saved& saved) const;
  Tensor forward(Run& run, Tensor residual, Tensor x, Saved& saved) const;             // may overwrite x
  void forward_to(Run& run, Tensor y, Tensor residual, Tensor x, Saved& saved) const;  // into the caller's y
  // Return the gradient of x: dy itself if y = residual + x. `backward` also adds the gradients of the norm.
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const;
  Tensor backward(Run& run, Tensor dy, Saved& saved) const;
  void backward_weight(Run& run, Saved& saved) const;

  // Whether y = residual + x, which a layer may fuse with writing x; it then shows the sum.
  bool only_adds(const Run& run) const { return !drops(run) && !shape_.norm && shape_.multiplier == 1; }
  void show_sum(Run& run, Tensor y) const { run.show(name_, "output", y); }
  // Whether backward reads x, so that a repeated forward must compute it (Run::repeats).
  bool keeps_input() const { return shape_.norm.has_value(); }

 private:
  bool drops(const Run& run) const { return dropout_ > 0 && run.training; }
  Tensor scaled_gradient(Run& run, Tensor dy) const;

  std::string name_;
  double dropout_;
  ResidualShape shape_;
  int row_part_;
  PhiloxKey key_;
  SlotId x_;  // the norm's input
};

}  // namespace trifold
