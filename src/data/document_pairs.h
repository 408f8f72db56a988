// Measures how evenly context ranks share the attention of samples with several documents: samples are cut without
// regard to documents, so the numbers of query-key pairs differ from rank to rank.
#pragma once

#include <span>

#include "data/batch.h"

namespace trifold {

// Adds to pairs[rank] the pairs of each context rank in the samples of `batch`, under a causal mask: a position attends
// to the positions from the beginning of its document to itself. `batch` must have all positions, and document_begin.
void add_document_pairs(const Batch& batch, std::span<double> pairs);

// The pairs of the busiest rank over the mean.
double most_over_mean(std::span<const double> pairs);

}  // namespace trifold
