// HeadNorm normalises the queries or the keys of attention: each head, or all heads of a token as one row
// (OLMo 2, arXiv 2501.00656). D = columns of a head, `local` of `all` heads are on this rank, W = local * D.
//
// Parameters <name>.gain and, for LayerNorm, <name>.bias: [D] for all heads; or, over all heads, <name>.gain [all * D], cut
// over the tensor axis with the heads. If ranks hold copies of a head, each has some of the gradient of that head.
#pragma once

#include <optional>
#include <string>

#include "nn/layers.h"

namespace trifold {

// The heads that a HeadNorm normalises.
struct NormedHeads {
  int64_t all = 0, local = 0, head_dim = 0;
  bool as_one = false;  // over all heads; needs RMSNorm
};

class HeadNorm {
 public:
  HeadNorm(BlockBuilder& builder, const std::string& name, const NormedHeads& heads, const NormForm& form);
  // As in Norm, for x and y [R, W].
  void take_statistics(Run& run, int64_t rows, Saved& saved) const;
  void apply(Run& run, Tensor y, Tensor x, Saved& saved) const;
  Tensor backward_input(Run& run, Tensor dy, Saved& saved) const;
  void backward_weight(Run& run, Saved& saved) const;

 private:
  Tensor by_row(Tensor all_heads) const;
  void add_over_axis(Run& run, Tensor sums) const;

  std::string name_;
  NormedHeads heads_;
  NormForm form_;
  int64_t copies_ = 1;        // ranks that hold a copy of the same heads
  std::optional<Norm> norm_;  // the norm of rows that are here as a whole; otherwise the members below
  std::optional<ParamId> gain_;
  SlotId x_, rstd_, dy_;
};

}  // namespace trifold
