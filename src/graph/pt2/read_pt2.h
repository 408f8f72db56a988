// Reads the graph of a file of torch.export.save into a Graph.
//
// The file must hold an exported program before any decomposition, as torch.export.export returns it: there linear,
// layer_norm, attention and the losses are single operations. models/model.json has
//
//   schema_version, torch_version
//   range_constraints   {symbol: {min_val, max_val}}: bounds of sizes that are not fixed
//   graph_module
//     signature         what each input of the graph is, and which buffer an output updates
//     graph
//       nodes           target (torch.ops.aten.linear.default), inputs by name, outputs, metadata with the Python line
//       tensor_values   type and sizes of every tensor by name
//       sym_int_values  integers that depend on sizes, as expressions
//
// Operations that are not in the table (graph/operations.h) do not prevent reading, so that all of them can be listed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/pt2/archive.h"

namespace trifold::graph {

struct Pt2Model {
  Graph graph;
  std::string torch_version;   // "2.15.0"
  std::string schema_version;  // "8.20"
  int file_nodes = 0;          // in the file; more or fewer than in the graph
};

// BadInput, beginning with `where`, if `text` is not such a graph, was written by another version of PyTorch than
// supported, or needs what a Graph cannot express: sizes computed from data, parameters written in place, inputs that
// are no tensors. `tensors`: the archive's, ordered by name.
Pt2Model read_pt2(std::string_view text, const std::string& where, const std::vector<StoredTensor>& tensors);

}  // namespace trifold::graph
