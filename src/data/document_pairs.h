// How evenly context ranks share the attention of samples with several documents: samples are cut as a whole, so the
// pairs of a query and a key differ from rank to rank.
#pragma once

#include <span>

#include "data/batch.h"

namespace trifold {

// Adds to pairs[rank] the pairs that a context rank has in the samples of `batch`, under a causal mask: a position sees
// those from the beginning of its document to itself. `batch` has all positions, and document_begin.
void add_document_pairs(const Batch& batch, std::span<double> pairs);

// The most pairs of a rank over the mean.
double most_over_mean(std::span<const double> pairs);

}  // namespace trifold
