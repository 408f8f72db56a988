#include "graph/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/bytes_text.h"
#include "core/printable.h"
#include "graph/lower/cut.h"
#include "graph/reach.h"

namespace trifold::graph {

namespace {

constexpr size_t kLineWidth = 110;

std::string value_text(const Graph& graph, ValueId id) {
  return fmt::format("{} {}", name_of(graph.at(id).type), to_text(graph.at(id).dims));
}

std::string batch_text(const Graph& graph) {
  if (!graph.has_batch) return "batch: fixed; the size of the inputs below\n";
  std::string range = fmt::format("{} samples or more", graph.least_batch);
  if (graph.most_batch) range = fmt::format("{} to {} samples", graph.least_batch, *graph.most_batch);
  return fmt::format("batch: {}\n", range);
}

std::string arrays_text(const Graph& graph) {
  std::string text = "inputs:\n";
  for (const Input& input : graph.inputs)
    if (input.kind == InputKind::Data)
      text += fmt::format("  {}  {}\n", printable(input.name), value_text(graph, input.value));
  text += "outputs:\n";
  for (const Output& output : graph.outputs)
    if (output.updates.empty())
      text +=
          fmt::format("  {}  {}\n", printable(graph.at(output.value).name), value_text(graph, output.value));
  return text;
}

// "1 tensor", "2 tensors".
std::string counted(int64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

struct Total {
  int64_t tensors = 0, elements = 0, bytes = 0;

  void add(const Graph& graph, const Input& input) {
    const int64_t count = graph.elements(input.value, 1);
    tensors += 1;
    elements += count;
    bytes += count * size_of(graph.at(input.value).type);
  }
  std::string text() const {
    return fmt::format("{}, {}, {}", counted(tensors, "tensor"), counted(elements, "element"),
                       bytes_text(static_cast<size_t>(bytes)));
  }
};

// "  KIND NAME" for each input that `chosen` accepts.
template <class Chosen>
std::string lines(const Graph& graph, std::string_view kind, Chosen&& chosen) {
  std::string text;
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    if (chosen(i)) text += fmt::format("  {}: {}\n", kind, printable(graph.inputs[i].name));
  return text;
}

std::string parameters_text(const Graph& graph) {
  Total all, buffers;
  const std::vector<bool> trained = trained_inputs(graph, 0);
  std::string ties;
  for (const Input& input : graph.inputs) {
    if (input.tied_to >= 0)
      ties += fmt::format("  tied: {} = {}\n", printable(input.name),
                          printable(graph.inputs[static_cast<size_t>(input.tied_to)].name));
    else if (input.kind != InputKind::Data)
      (input.kind == InputKind::Parameter ? all : buffers).add(graph, input);
  }
  const auto is_parameter = [&](size_t i) { return graph.inputs[i].kind == InputKind::Parameter; };
  std::string text = fmt::format("parameters: {}\n{}", all.text(), ties);
  text += lines(graph, "frozen (requires_grad is false)",
                [&](size_t i) { return is_parameter(i) && !graph.inputs[i].requires_grad; });
  text += lines(graph, "no gradient reaches it",
                [&](size_t i) { return is_parameter(i) && graph.inputs[i].requires_grad && !trained[i]; });
  if (buffers.tensors > 0) text += fmt::format("buffers and constants: {}\n", buffers.text());
  for (const Output& output : graph.outputs)
    if (!output.updates.empty())
      text += fmt::format("  updated by each forward: {}\n", printable(output.updates));
  return text;
}

// Most frequent first, on as many lines as needed.
std::string operations_text(const Graph& graph) {
  std::map<std::string, int> counts;
  for (const Node& node : graph.nodes) ++counts[node.name];
  std::vector<std::pair<std::string, int>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text = fmt::format("operations: {} of {} kinds:", graph.nodes.size(), counts.size());
  size_t width = text.size();
  for (const auto& [name, count] : sorted) {
    const std::string item =
        fmt::format("{} {}{}", count, printable(name), name == sorted.back().first ? "" : ",");
    const bool fits = width + 1 + item.size() <= kLineWidth;
    text += (fits ? " " : "\n  ") + item;
    width = (fits ? width + 1 : 2) + item.size();
  }
  return text + "\n";
}

// The path up to and including its first number, which is that of a layer in a list. Paths without a number keep two
// components.
std::string module_group(std::string_view path) {
  std::string numbered = numbered_module(path);
  if (!numbered.empty()) return numbered;
  const size_t first = path.find('.');
  return std::string(first == path.npos ? path : path.substr(0, path.find('.', first + 1)));
}

// Groups of modules with their parameters and operations, in the order of execution.
std::string modules_text(const Graph& graph) {
  std::vector<std::pair<std::string, std::pair<Total, int>>> groups;
  std::map<std::string, size_t> index;
  const auto group = [&](const std::string& path) -> std::pair<Total, int>& {
    const auto [at, added] = index.emplace(module_group(path), groups.size());
    if (added) groups.emplace_back(at->first, std::pair<Total, int>());
    return groups[at->second].second;
  };
  for (const Node& node : graph.nodes) ++group(node.origin.module).second;
  for (const Input& input : graph.inputs)
    if (input.kind == InputKind::Parameter && input.tied_to < 0)
      group(input.name.substr(0, input.name.rfind('.') == input.name.npos ? 0 : input.name.rfind('.')))
          .first.add(graph, input);
  std::string text = "modules:\n";
  for (const auto& [path, totals] : groups) {
    text += fmt::format("  {}: {}", path.empty() ? "(outermost)" : printable(path),
                        counted(totals.second, "operation"));
    text += totals.first.tensors > 0 ? fmt::format(", {}\n", totals.first.text()) : "\n";
  }
  return text;
}

}  // namespace

std::string describe(const Graph& graph) {
  return batch_text(graph) + arrays_text(graph) + parameters_text(graph) + operations_text(graph) +
         modules_text(graph);
}

}  // namespace trifold::graph
