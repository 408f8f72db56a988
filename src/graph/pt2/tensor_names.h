// TensorNames: the value of each tensor of the file at a point of its graph, which turns writes in place into values.
//
// In the file a name stands for memory: a view shows the memory of another tensor, and an operation such as add_ changes
// what every name of that memory shows. In a Graph values never change. So:
//   - a write gives the name a new value, and puts it into the tensor that the name is a view of (slice_scatter, a
//     transposition back, ...), up to the tensor that owns the memory;
//   - another view of that memory is computed again from the new value when it is read next.
// Some operations (reshape, contiguous) return a view or a copy, depending on strides, which are not followed here.
// After a write to one of the two, reading the other is an error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace trifold::graph {

class TensorNames {
 public:
  // Adds nodes to `graph`, which must outlive this object.
  explicit TensorNames(Graph& graph) : graph_(graph) {}

  // Each name of a file is defined once; BadInput if it is again.
  // A tensor with memory of its own.
  void define(const std::string& name, ValueId value);
  // Output `output` of node `node` of the graph, a view of the tensor `base`; node -1: the tensor itself.
  void define_view(const std::string& name, ValueId value, const std::string& base, int node, int output);
  // A tensor that may share the memory of `base`.
  void define_either(const std::string& name, ValueId value, const std::string& base);

  bool has(const std::string& name) const { return entries_of_.count(name) > 0; }
  // The value of `name` at this point. BadInput if there is no such tensor, or if a write may have changed it.
  ValueId read(const std::string& name);
  // `name` has been written by the operation that `by` describes, and shows `value` from here on. Call read() before.
  void write(const std::string& name, ValueId value, const std::string& by);

 private:
  // Tensors that may share memory.
  struct Group {
    // Time of the last write, the memory that was written, and the time of the last write to another one.
    int64_t last = 0, last_other = 0;
    int last_memory = -1;
    std::string by;  // the last operation that wrote
  };
  struct Memory {
    int64_t version = 0;
    int64_t born = 0;
    int group = 0;
  };
  struct Entry {
    ValueId value;
    int memory = 0;
    int base = -1;        // index of the entry that this one is a view of; -1: it owns the memory
    int node = -1;        // index of the view's node; -1: the base itself
    int output = 0;       // which of the node's outputs
    int depth = 0;        // views between this one and the owner
    int64_t version = 0;  // the version of the memory when `value` was computed
  };

  void add(const std::string& name, Entry entry);
  int index_of(const std::string& name) const;
  Memory& memory_of(const Entry& entry) { return memories_[static_cast<size_t>(entry.memory)]; }
  // The current value of an entry; computes stale views again, from the owner on.
  ValueId current(int index);
  ValueId view_again(const Entry& entry, ValueId base);
  // The value of `whole` after its view by `view_node` has become `part`.
  ValueId put_back(int view_node, ValueId whole, ValueId part, const std::string& by);
  ValueId add_node(Node node, const Value& like);
  void spend(const Node& node);
  void check_not_stale(const Entry& entry, const std::string& name);

  Graph& graph_;
  size_t added_ = 0;  // the size of all nodes added so far, in list items
  int64_t time_ = 0;
  std::vector<Entry> entries_;
  std::vector<Memory> memories_;
  std::vector<Group> groups_;
  std::unordered_map<std::string, int> entries_of_;
};

}  // namespace trifold::graph
