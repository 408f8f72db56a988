// Sizes in a file of torch.export: numbers, and expressions in symbols for sizes that are not fixed.
//
// PyTorch writes expressions as sympy's srepr: "Mul(Integer(8), Symbol('s72', positive=True, integer=True))". The only
// symbols that a graph may have are the sizes of the first dimension of its inputs. They all stand for the batch:
// PyTorch has one for each input and knows by its guards that they are equal.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "graph/graph.h"

namespace trifold::graph {

// The symbols that stand for the batch.
using BatchSymbols = std::set<std::string, std::less<>>;

// The value of an expression if it is a constant or a multiple of the batch; none for other expressions, and for texts
// that are no expressions.
std::optional<Extent> extent_of(std::string_view expression, const BatchSymbols& batch);

// The symbol, if the expression is one and nothing else; empty otherwise.
std::string symbol_of(std::string_view expression);

}  // namespace trifold::graph
