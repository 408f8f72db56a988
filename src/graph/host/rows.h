// The rows of the table of operations that are evaluated on the host; each file of this folder gives some.
#pragma once

#include <string_view>
#include <vector>

#include "graph/host/call.h"

namespace trifold::graph {

struct HostRow {
  std::string_view name;                            // as in graph/operations.h
  Array (*one)(const Call&) = {};                   // computes its output,
  std::vector<Array> (*several)(const Call&) = {};  // or all of its outputs
};

void add_elementwise_rows(std::vector<HostRow>& rows);  // arithmetic and functions of each element
void add_comparison_rows(std::vector<HostRow>& rows);   // comparisons, logic, choices between elements
void add_shape_rows(std::vector<HostRow>& rows);        // views, slices, joins
void add_index_rows(std::vector<HostRow>& rows);        // elements chosen by arrays of indices
void add_reduction_rows(std::vector<HostRow>& rows);    // sums, softmax and others along dims
void add_maker_rows(std::vector<HostRow>& rows);        // arrays made from numbers
void add_product_rows(std::vector<HostRow>& rows);      // products of matrices

}  // namespace trifold::graph
