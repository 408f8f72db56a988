// The second half of a transformer block, between its norm and the residual stream: one network for all
// tokens, or experts (nn/experts.h).
#pragma once

#include <memory>
#include <string>

#include "core/function_ref.h"
#include "nn/layers.h"

namespace trifold {

struct TransformerShape;

class FeedForward {
 public:
  virtual ~FeedForward() = default;
  // residual + drop(f(x)), in run.output(). What backward would compute again if it were not kept goes into
  // `maybe`.
  virtual Tensor forward_added(Run& run, Arena& maybe, const DropoutAdd& add, Tensor residual, Tensor x,
                               Saved& saved) const = 0;
  // The gradient of x, and those of the weights where `with_weights` is set. Where x was not kept, `input`
  // computes it again; what else is computed again goes where `again` keeps things.
  virtual Tensor walk_back(Run& run, Run& again, Tensor dy, FunctionRef<Tensor()> input, Saved& saved,
                           bool with_weights) const = 0;
  virtual void backward_weight(Run& run, Saved& saved) const = 0;
};

// What the shape asks for; parameters are named <name>.*.
std::unique_ptr<FeedForward> make_feed_forward(BlockBuilder& builder, const std::string& name,
                                               const TransformerShape& shape);

}  // namespace trifold
