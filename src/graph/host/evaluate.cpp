#include "graph/host/evaluate.h"

#include <algorithm>

#include "core/error.h"
#include "graph/host/rows.h"
#include "graph/operations.h"

namespace trifold::graph {

namespace {

std::vector<HostRow> sorted_host_rows() {
  std::vector<HostRow> rows;
  for (auto* const add : {add_elementwise_rows, add_comparison_rows, add_shape_rows, add_index_rows,
                          add_reduction_rows, add_maker_rows, add_product_rows})
    add(rows);
  std::sort(rows.begin(), rows.end(), [](const HostRow& a, const HostRow& b) { return a.name < b.name; });
  return rows;
}

const HostRow* find_host_row(const Node& node) {
  static const std::vector<HostRow> kRows = sorted_host_rows();
  if (node.operation == nullptr) return nullptr;
  const auto at = std::lower_bound(kRows.begin(), kRows.end(), node.operation->name,
                                   [](const HostRow& row, std::string_view name) { return row.name < name; });
  return at != kRows.end() && at->name == node.operation->name ? &*at : nullptr;
}

// A file may give an output any shape; what reads it relies on that.
void check_outputs(const Call& call, const Node& node, const std::vector<Array>& outputs) {
  check(outputs.size() == node.outputs.size(), "{} outputs were computed instead of {}", outputs.size(),
        node.outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (node.outputs[i].index < 0) continue;
    if (outputs[i].type != call.type(i) || outputs[i].dims != call.dims(i))
      bad_input("its output {} is {} {} in the graph, but {} {} when it is computed", i,
                name_of(call.type(i)), dims_text(call.dims(i)), name_of(outputs[i].type),
                dims_text(outputs[i].dims));
  }
}

}  // namespace

bool can_evaluate(const Node& node) {
  if (find_host_row(node) == nullptr) return false;
  if (node.operation->name != "dropout") return true;
  const double* p = node.arguments.size() > 2 ? std::get_if<double>(&node.arguments[1]) : nullptr;
  const bool* train = p == nullptr ? nullptr : std::get_if<bool>(&node.arguments[2]);
  return train != nullptr && (!*train || *p <= 0);
}

std::vector<Array> evaluate(const Graph& graph, const Node& node, FunctionRef<const Array&(ValueId)> values,
                            int64_t batch) {
  try {
    const HostRow* row = find_host_row(node);
    if (row == nullptr) fail("the operation is not evaluated on the host");
    const Call call(graph, node, values, batch);
    std::vector<Array> outputs;
    if (row->one != nullptr)
      outputs.push_back(row->one(call));
    else
      outputs = row->several(call);
    check_outputs(call, node, outputs);
    return outputs;
  } catch (Error& error) {
    error.add_context(to_text(node));
    throw;
  }
}

}  // namespace trifold::graph
