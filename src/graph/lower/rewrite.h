// Rewrites a graph, of which compositions are decomposed (graph/lower/decompose.h), into one that the rules of steps cover, and into their fused operations:
//   cross_entropy_loss, nll_loss of a log_softmax   cross_entropy_sum with a weight for each row
//   the same of a linear layer's outputs, if it is the model's loss    linear_cross_entropy
//   embedding with a padding_idx                    embedding_padded
//   rows of a table by index.Tensor, index_select   embedding
//   the tanh and erf forms of GELU, spelled out     gelu
//   x rsqrt(mean(x^2) + eps) gain                   rms_norm
//   attention under a constant mask that is lower triangular, or hides nothing   attention that is causal, or unmasked
// Values keep their ids, so a rewritten node computes the value of the node that it replaces. Nodes that are
// not needed any more stay; lowering leaves them out.
#pragma once

#include <optional>

#include "core/function_ref.h"
#include "graph/graph.h"
#include "graph/host/array.h"

namespace trifold::graph {

// Returns the value for one sample, or nothing if it depends on more than constants.
using ConstantOf = FunctionRef<std::optional<Array>(ValueId value)>;

// `trained`: for each value whether it depends on a parameter.
Graph rewritten(Graph graph, const std::vector<bool>& trained, ConstantOf constant);

}  // namespace trifold::graph
