// Step: one operation of a block that was lowered from a graph, with its adjoint. Rules make steps from nodes
// (graph/steps/rules.h). Frame holds the values and gradients of one call of the block.
//
// A step computes its output into memory that it is given, and gives the gradient of each operand to the frame, which
// adds it to the gradient of the operand's base: in the order of the calls, so from the last consumer to the first.
#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "graph/lower/lowered.h"
#include "nn/layer.h"

namespace trifold::graph {

struct StridedTensor {
  Tensor tensor;
  StridedView view;
};

// How a block has a base. Steps of a block number its bases from 0.
struct BlockBase {
  const Base* base = nullptr;
  ParamId param;           // if it is a parameter
  bool enters = false;     // part of the block's input
  bool leaves = false;     // part of its output
  Size entering, leaving;  // offsets of these parts, in elements
  bool kept = false;       // computed here, read by a backward part, and not repeated
  bool repeated = false;   // computed here, and computed again by the backward parts that read it
  bool held = false;       // its gradient is read by backward_weight
  bool needs_gradient = false;
  SlotId value, gradient;  // if kept, and if held
};

class Frame {
 public:
  // The gradient of an operand, which a step computes: in the order of the operand's elements.
  struct Target {
    Tensor tensor;
    bool in_place = false;  // it is the base's gradient itself
    bool adds = false;      // the step must add to it
  };

  // `x` is the block's input, without memory if it has none.
  Frame(Run& of_run, std::span<const BlockBase> bases, const LoweredGraph& lowered, Tensor x);

  Run& run;
  const int64_t batch;

  DType type_of(const Operand& operand) const { return type_of(operand.base); }
  DType type_of(int base) const;
  // The memory of a base, as a tensor of one dim.
  Tensor value(int base) const;
  void set_value(int base, Tensor tensor);
  // The elements of an operand in order, as a tensor of one dim: the base's memory, or a temporary copy.
  Tensor dense(const Operand& operand) { return dense(operand, type_of(operand)); }
  Tensor dense(const Operand& operand, DType dtype);
  // The memory of an operand's base, converted to `dtype` if it has another.
  StridedTensor strided(const Operand& operand, DType dtype);
  ParamId param(const Operand& operand) const { return of(operand.base).param; }
  // The tensor, or a temporary copy of another type.
  Tensor converted(Tensor tensor, DType dtype) const;
  // The memory of the result of the step whose backward part runs.
  Tensor output() const { return value(output_); }
  void begin_step(int output) { output_ = output; }
  void map(Tensor y, std::initializer_list<Tensor> x, const Map& map) const {
    run.ops.map(run.stream, y, std::span<const Tensor>(x.begin(), x.size()), map);
  }
  // How often the model's loss counts in the run's sum: once, or, if it is a mean, for each sample.
  double loss_weight = 1;
  // Memory until the call of the step returns.
  Tensor temporary(DType dtype, const Shape& shape) const { return run.scratch.take(dtype, shape); }

  // ---- in backward ----

  bool wants(const Operand& operand) const { return operand.exists() && of(operand.base).needs_gradient; }
  // Sets the memory of a base's gradient, which is `begun` if it already holds a part of the sum.
  void set_gradient(int base, Tensor tensor, bool begun);
  bool has_gradient(int base) const { return sums_[static_cast<size_t>(base)].tensor.rank() > 0; }
  bool begun(int base) const { return sums_[static_cast<size_t>(base)].begun; }
  Tensor gradient_of(int base) const { return sums_[static_cast<size_t>(base)].tensor; }
  // Memory for the gradient of an operand that wants one; Target::adds only with `can_add`.
  Target gradient(const Operand& operand, bool can_add = false);
  // Called when the step has enqueued the work that completes the gradient. `operand` may be repeated along axes
  // (broadcast in graph/lower/view.h): its gradient is then summed over them.
  void give(const Operand& operand, const Target& target);

 private:
  struct Sum {
    Tensor tensor;
    bool begun = false;
    bool lent = false;  // a step computes it in place
  };
  const BlockBase& of(int base) const { return bases_[static_cast<size_t>(base)]; }
  bool is_whole(const Operand& operand) const;
  Tensor prepared(const Base& base) const;

  std::span<const BlockBase> bases_;
  const ArrayLayout& arrays_;
  Tensor x_;
  int output_ = -1;
  std::vector<Tensor>& values_;  // the thread's, so that a call allocates nothing
  std::vector<Sum>& sums_;
};

class Step {
 public:
  virtual ~Step() = default;
  // Takes the tensors that it saves from run.keep, besides values of bases. Called before scratch is marked.
  virtual void take_saved(Frame& /*frame*/, Saved& /*saved*/) const {}
  // Computes `y`, the memory of the output's base.
  virtual void forward(Frame& frame, Saved& saved, Tensor y) const = 0;
  // Gives the gradients of the operands that want one, except the gradients that backward_weight computes. `dy` has the shape
  // of y, and is read-only.
  virtual void backward(Frame& frame, Saved& saved, Tensor dy) const = 0;
  // Gradients of weights, which may be computed any time later.
  virtual void backward_weight(Frame& /*frame*/, Saved& /*saved*/, Tensor /*dy*/) const {}
  // The parameters whose gradients backward_weight computes.
  virtual std::vector<Operand> weight_operands() const { return {}; }
  // Whether forward adds to gradients of weights if a backward follows, as Layer::adds_in_forward.
  virtual bool adds_in_forward() const { return false; }
  // Whether backward_weight completes the gradient of its only weight before it adds it to the memory.
  virtual bool adds_whole_gradient() const { return false; }
  // What the backward parts read: the operands of each, and whether `backward` reads the output.
  virtual std::vector<Operand> reads() const { return {}; }
  virtual std::vector<Operand> weight_reads() const { return {}; }
  virtual bool reads_output() const { return false; }
  // Whether forward is one pass over its operands, without a product or a sum over many. If the operands are available
  // in backward, the output of such a step is not kept: forward is called again, and must give the same bits.
  virtual bool is_cheap() const { return false; }
};

}  // namespace trifold::graph
