// Layer: one differentiable step whose three parts can run at different times.
//
//   forward          y = f(x; w)            leaves in `saved` what the backward parts need
//   backward_input   dx = (df/dx)^T dy      assigns dx; may leave dy in `saved`
//   backward_weight  dw += (df/dw)^T dy     reads only `saved`; may run any time later
//   backward         both, in one call; layers override it where doing both together is faster
//
// A layer remembers nothing: everything that changes is in `Run` and `Saved`, so any number of micro-batches
// can be in flight. Parameters and save slots are declared once, in the constructor, through a BlockBuilder;
// after that the layer is const. Every call only enqueues work on run.stream, so a layer can be walked dry to
// learn its memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/stream.h"
#include "core/tensor.h"
#include "data/batch.h"
#include "mesh/mesh.h"
#include "nn/param.h"
#include "ops/ops.h"

namespace trifold {

// Index of a tensor that a block keeps from forward (or backward_input) for a later part.
struct SlotId {
  int index = -1;
};

// What one block keeps for one micro-batch: one tensor per declared slot. The memory belongs to the arenas of
// `Run`.
class Saved {
 public:
  explicit Saved(int slots) : tensors_(static_cast<size_t>(slots)) {}
  Tensor& operator[](SlotId slot) { return tensors_[static_cast<size_t>(slot.index)]; }
  const Tensor& operator[](SlotId slot) const { return tensors_[static_cast<size_t>(slot.index)]; }

 private:
  std::vector<Tensor> tensors_;
};

// What a layer is run with. All references outlive the call.
struct Run {
  Stream& stream;
  const OpTable& ops;
  const Mesh& mesh;
  const ParamSource& params;
  const GradSink* grads;  // null when there is no backward
  Arena& keep;            // outputs of forward and saved tensors: lives until the block's backward_weight
  Arena& flow;            // activation gradients: lives until the block's backward_weight
  Arena& scratch;         // temporaries: a layer releases what it took before it returns
  const Batch* batch;     // of this micro-batch; outlives its backward
  DType dtype;
  bool training;      // dropout is applied only when true
  uint64_t seed;      // of dropout
  double loss_scale;  // factor of the loss before backward: 1 / (tokens in the global batch)
  Tensor loss_sum;    // f64 [1], += the weighted sum of the losses of this micro-batch
  Tensor weight_sum;  // f64 [1], += the sum of the loss weights

  Tensor weight(ParamId id) const { return params.weight(id); }
  Tensor grad(ParamId id) const { return grads->grad(id); }
};

// Collects the parameters and save slots of one block while its layers are constructed.
class BlockBuilder {
 public:
  // Adds parameters to `params`, all marked with `block`. `params` and `mesh` must outlive the builder.
  BlockBuilder(ParamList& params, const Mesh& mesh, int block, uint64_t seed)
      : params_(params), mesh_(mesh), block_(block), seed_(seed) {}

  // A whole parameter on every rank of the tensor axis.
  ParamId replicated(const std::string& name, const Shape& shape, Init init, bool decay);
  // A parameter cut evenly along `dim` over the tensor axis.
  ParamId sharded(const std::string& name, const Shape& global, int dim, Init init, bool decay);
  // A second use of `of` (see ParamSpec::tied_to), named "<name of it>@<use>".
  ParamId tied(ParamId of, const std::string& use);
  SlotId slot() { return {slots_++}; }

  int slots() const { return slots_; }
  const Mesh& mesh() const { return mesh_; }
  const ParamList& params() const { return params_; }
  uint64_t seed() const { return seed_; }

 private:
  ParamId add(const std::string& name, const Shape& global, const Rect& local, AxisSet replicated, Init init,
              bool decay);

  ParamList& params_;
  const Mesh& mesh_;
  int block_;
  uint64_t seed_;
  int slots_ = 0;
};

class Layer {
 public:
  virtual ~Layer() = default;
  virtual Tensor forward(Run& run, Tensor x, Saved& saved) const = 0;
  virtual Tensor backward_input(Run& run, Tensor dy, Saved& saved) const = 0;
  virtual void backward_weight(Run& run, Saved& saved) const = 0;
  virtual Tensor backward(Run& run, Tensor dy, Saved& saved) const {
    const Tensor dx = backward_input(run, dy, saved);
    backward_weight(run, saved);
    return dx;
  }
};

}  // namespace trifold
