// Operations that are compositions of others, as the graph of these:
//   squeeze, squeeze.dims, unflatten.int, numpy_T, mT, broadcast_tensors      views
//   repeat, repeat_interleave.self_int                                        views, and a copy
//   baddbmm                                                                   a product and a sum
//   mse_loss, l1_loss, smooth_l1_loss, huber_loss, kl_div, binary_cross_entropy,
//   binary_cross_entropy_with_logits                                          elementwise operations and a sum or mean
//   cross_entropy_loss with smoothed labels, or with probabilities as labels  log_softmax, and sums
#pragma once

#include <vector>

#include "graph/graph.h"

namespace trifold::graph {

// Values keep their ids; new ones follow. A node that has another form than those above, such as a reduction that does not
// exist, stays. `trained`: for each value whether it depends on a parameter.
Graph decomposed(Graph graph, const std::vector<bool>& trained);

}  // namespace trifold::graph
