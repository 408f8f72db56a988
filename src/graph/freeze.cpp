#include "graph/freeze.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fnmatch.h>

#include <algorithm>

#include "config/fields/nearest.h"
#include "core/error.h"
#include "core/printable.h"

namespace trifold::graph {

namespace {

bool matches(const std::string& pattern, const Input& input) {
  return input.kind == InputKind::Parameter && fnmatch(pattern.c_str(), input.name.c_str(), 0) == 0;
}

[[noreturn]] void refuse_pattern(const Graph& graph, const std::string& pattern) {
  std::vector<std::string> names;
  for (const Input& input : graph.inputs)
    if (input.kind == InputKind::Parameter) names.push_back(input.name);
  std::vector<std::string> near = similar(pattern, names);
  if (near.empty())
    near.assign(names.begin(), names.begin() + std::min<std::ptrdiff_t>(3, std::ssize(names)));
  bad_input("--freeze {} matches no parameter of the model; it has names such as {}", printable(pattern),
            printable(fmt::format("{}", fmt::join(near, ", "))));
}

bool is_trained(const Input& input) { return input.kind == InputKind::Parameter && input.requires_grad; }

}  // namespace

std::vector<std::string> freeze(Graph& graph, std::span<const std::string> patterns) {
  std::vector<Input>& inputs = graph.inputs;
  const auto owner = [&](size_t i) {
    return inputs[i].tied_to < 0 ? i : static_cast<size_t>(inputs[i].tied_to);
  };
  std::vector<bool> chosen(inputs.size());  // owners
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (!matches(pattern, inputs[i])) continue;
      any = chosen[owner(i)] = true;
    }
    if (!any) refuse_pattern(graph, pattern);
  }
  const bool trains = std::any_of(inputs.begin(), inputs.end(), is_trained);
  std::vector<std::string> names;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!chosen[owner(i)]) continue;
    if (owner(i) == i && is_trained(inputs[i])) names.push_back(inputs[i].name);
    inputs[i].requires_grad = false;
  }
  if (trains && std::none_of(inputs.begin(), inputs.end(), is_trained))
    bad_input("--freeze {} leaves no parameter to train: leave some out",
              printable(fmt::format("{}", fmt::join(patterns, " "))));
  return names;
}

}  // namespace trifold::graph
