// HeadProjections: the first part of attention, from rows of the residual stream to packed queries, keys and values as
// OpTable::attention reads them. Queries, keys and values are products of the row (query_key_value.h), or of latent
// vectors of the row (latent_projections.h). Enters a region (regions.h): each rank computes the heads that
// AttentionHeads assigns to it.
#pragma once

#include "nn/layer.h"

namespace trifold {

class HeadProjections : public Layer {
 public:
  // Replaces the input that forward saved by a recomputed one, before the backward parts.
  virtual void set_input(Saved& saved, Tensor x) const = 0;
  // Whether forward and set_input take a narrow x (ops/narrow.h).
  virtual bool reads_narrow(const Run& /*run*/) const { return false; }
  // Whether the backward reads the input.
  virtual bool reads_input() const { return true; }
};

}  // namespace trifold
