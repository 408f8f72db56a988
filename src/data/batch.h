// Batch: the tokens of one micro-batch, and DataSource: where they come from.
//
// The training order is a pure function of the seed, and the position in it is one integer, the number of
// samples consumed so far; so the global batch does not depend on the mesh, and resume needs nothing else.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace trifold {

// Views; all [b, T]. `tokens[b, t + 1]` is `labels[b, t]`.
struct Batch {
  Tensor tokens;             // i32
  Tensor labels;             // i32
  Tensor positions;          // i32, 0 .. T-1 in each sample
  Tensor loss_weight;        // f32, 1 where the label counts, 0 where it does not
  int64_t first_sample = 0;  // global index of sample 0; sample b has index first_sample + b

  int64_t samples() const { return tokens.dim(0); }
  int64_t seq_length() const { return tokens.dim(1); }
};

class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual int64_t seq_length() const = 0;
  // Samples this source can give: consumed samples beyond it are an Error.
  virtual int64_t samples() const = 0;
  // Fills the four tensors of `batch` with samples [first_sample, first_sample + b). A pure function,
  // callable from several threads at a time.
  virtual void read(Batch& batch, int64_t first_sample) const = 0;
};

// Its first `count` samples, as views.
Batch first_samples(const Batch& whole, int64_t count);

// Fills `batch` with samples [first_sample, first_sample + b) of which those from `end` on do not exist:
// their places are padding, token 0 throughout with a loss weight of 0, and the source is not asked for them.
void read_padded(const DataSource& source, Batch& batch, int64_t first_sample, int64_t end);

}  // namespace trifold
