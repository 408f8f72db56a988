#include "graph/pt2/tensor_names.h"

#include <fmt/format.h>

#include <utility>

#include "core/error.h"
#include "core/printable.h"
#include "graph/operations.h"

namespace trifold::graph {

namespace {

constexpr int kMostViews = 1000;          // views of views
constexpr size_t kMostAdded = 1'000'000;  // size of all added nodes, in list items

Node node_of(const char* operation, std::vector<Argument> arguments, const Origin& origin) {
  return {find_operation(operation), operation, std::move(arguments), {}, origin};
}

// Dims in their places before permute(dims); negative ones count from the end.
std::vector<Extent> inverse(const std::vector<Extent>& dims) {
  std::vector<Extent> result(dims.size());
  const auto rank = std::ssize(dims);
  for (int64_t place = 0; place < rank; ++place) {
    const int64_t dim = dims[static_cast<size_t>(place)].value;
    const int64_t at = dim < 0 ? dim + rank : dim;
    if (at < 0 || at >= rank) bad_input("the dims {} are not a permutation", to_text(dims));
    result[static_cast<size_t>(at)] = {place};
  }
  return result;
}

}  // namespace

void TensorNames::add(const std::string& name, Entry entry) {
  if (!entries_of_.emplace(name, static_cast<int>(entries_.size())).second)
    bad_input("the tensor '{}' is defined twice", printable(name));
  entries_.push_back(entry);
}

void TensorNames::define(const std::string& name, ValueId value) {
  memories_.push_back({0, time_, static_cast<int>(groups_.size())});
  groups_.emplace_back();
  add(name, {.value = value, .memory = static_cast<int>(memories_.size()) - 1});
}

void TensorNames::define_view(const std::string& name, ValueId value, const std::string& base, int node,
                              int output) {
  const int of = index_of(base);
  const Entry& whole = entries_[static_cast<size_t>(of)];
  if (whole.depth == kMostViews)
    bad_input("'{}' is a view of more than {} views", printable(name), kMostViews);
  add(name, {value, whole.memory, of, node, output, whole.depth + 1, memory_of(whole).version});
}

void TensorNames::define_either(const std::string& name, ValueId value, const std::string& base) {
  const int group = memory_of(entries_[static_cast<size_t>(index_of(base))]).group;
  memories_.push_back({0, time_, group});
  add(name, {.value = value, .memory = static_cast<int>(memories_.size()) - 1});
}

int TensorNames::index_of(const std::string& name) const {
  const auto found = entries_of_.find(name);
  if (found == entries_of_.end())
    bad_input("the tensor '{}' is not an input, nor the output of an earlier node", printable(name));
  return found->second;
}

void TensorNames::check_not_stale(const Entry& entry, const std::string& name) {
  const Memory& memory = memory_of(entry);
  const Group& group = groups_[static_cast<size_t>(memory.group)];
  const int64_t written = group.last_memory == entry.memory ? group.last_other : group.last;
  if (written > memory.born)
    bad_input(
        "the tensor '{}' may have been changed by {}, depending on strides: clone the one that is written",
        printable(name), group.by);
}

ValueId TensorNames::read(const std::string& name) {
  const int index = index_of(name);
  check_not_stale(entries_[static_cast<size_t>(index)], name);
  return current(index);
}

ValueId TensorNames::current(int index) {
  // From the first stale entry below the owner, or below one that is up to date, to this one.
  std::vector<int> stale;
  for (int at = index; at >= 0; at = entries_[static_cast<size_t>(at)].base) {
    const Entry& entry = entries_[static_cast<size_t>(at)];
    if (entry.base < 0 || entry.version == memory_of(entry).version) break;
    stale.push_back(at);
  }
  for (; !stale.empty(); stale.pop_back()) {
    Entry& entry = entries_[static_cast<size_t>(stale.back())];
    entry.value = view_again(entry, entries_[static_cast<size_t>(entry.base)].value);
    entry.version = memory_of(entry).version;
  }
  return entries_[static_cast<size_t>(index)].value;
}

ValueId TensorNames::view_again(const Entry& entry, ValueId base) {
  if (entry.node < 0) return base;
  Node node = graph_.nodes[static_cast<size_t>(entry.node)];
  node.arguments.front() = base;
  spend(node);
  for (ValueId& output : node.outputs)
    if (output.index >= 0) output = graph_.add(graph_.at(output));
  const ValueId value = node.outputs[static_cast<size_t>(entry.output)];
  graph_.nodes.push_back(std::move(node));
  return value;
}

void TensorNames::write(const std::string& name, ValueId value, const std::string& by) {
  int at = index_of(name);
  Memory& memory = memory_of(entries_[static_cast<size_t>(at)]);
  std::vector<std::pair<int, ValueId>> shown{{at, value}};
  for (int base = entries_[static_cast<size_t>(at)].base; base >= 0;
       base = entries_[static_cast<size_t>(base)].base) {
    value = put_back(entries_[static_cast<size_t>(at)].node, current(base), value, by);
    shown.emplace_back(base, value);
    at = base;
  }
  ++memory.version;
  for (const auto& [index, now] : shown) {
    entries_[static_cast<size_t>(index)].value = now;
    entries_[static_cast<size_t>(index)].version = memory.version;
  }
  Group& group = groups_[static_cast<size_t>(memory.group)];
  const int written = entries_[static_cast<size_t>(at)].memory;
  if (group.last_memory != written) group.last_other = group.last;
  group.last = ++time_;
  group.last_memory = written;
  group.by = by;
}

ValueId TensorNames::put_back(int view_node, ValueId whole, ValueId part, const std::string& by) {
  if (view_node < 0) return part;
  const Node& view = graph_.nodes[static_cast<size_t>(view_node)];
  const Value like = graph_.at(whole);
  std::vector<Argument> rest(view.arguments.begin() + 1, view.arguments.end());
  if (view.name == "view" || view.name == "unsqueeze" || view.name == "squeeze.dim")
    return add_node(node_of("view", {part, like.dims}, view.origin), like);
  if (view.name == "permute")
    return add_node(
        node_of("permute", {part, inverse(std::get<std::vector<Extent>>(rest.at(0)))}, view.origin), like);
  const bool scatters = view.name == "slice.Tensor" || view.name == "select.int";
  if (!scatters && view.name != "transpose.int" && view.name != "t")
    bad_input("{} writes through a view made by '{}', which is not supported", by, printable(view.name));
  const char* operation = view.name == "slice.Tensor" ? "slice_scatter" : "select_scatter";
  Node node = scatters ? node_of(operation, {whole, part}, view.origin) : Node(view);
  if (scatters)
    node.arguments.insert(node.arguments.end(), rest.begin(), rest.end());
  else
    node.arguments.front() = part;
  return add_node(std::move(node), like);
}

// A few nodes of a file must not make a graph that fills the memory: each write may repeat many views.
void TensorNames::spend(const Node& node) {
  ++added_;
  for (const Argument& argument : node.arguments)
    if (const auto* list = std::get_if<std::vector<Extent>>(&argument)) added_ += list->size();
  for (const ValueId output : node.outputs)
    if (output.index >= 0) added_ += 1 + graph_.at(output).dims.size() + graph_.at(output).name.size() / 16;
  if (added_ > kMostAdded) bad_input("writes in place through views need too many additional operations");
}

ValueId TensorNames::add_node(Node node, const Value& like) {
  const ValueId value = graph_.add(like);
  node.outputs = {value};
  spend(node);
  graph_.nodes.push_back(std::move(node));
  return value;
}

}  // namespace trifold::graph
