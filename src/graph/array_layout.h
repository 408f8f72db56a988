// ArrayLayout: where the arrays of a micro-batch that blocks read lie in one block of bytes (Batch::arrays).
//
// At this border there are three types: floats are f32 or f64, the run's accumulate_type; bools are floats too, 0 or 1,
// since blocks multiply by masks; integers are i32. Each array begins at a multiple of 64 bytes, and all lie one after
// the other, so that offsets depend on the number of samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "graph/graph.h"
#include "graph/host/array.h"

namespace trifold::graph {

class ArrayLayout {
 public:
  struct Entry {
    ValueId value;
    std::string name;  // the value's, for messages
    std::vector<Extent> dims;
    DType dtype = DType::F32;  // at the border
  };

  ArrayLayout() = default;
  // Floats are written as `floats`, F32 or F64.
  ArrayLayout(const Graph& graph, std::span<const ValueId> values, DType floats);

  size_t size() const { return entries_.size(); }
  const Entry& entry(size_t i) const { return entries_[i]; }
  // The index of the entry of a value; none if the layout does not have it.
  std::optional<size_t> find(ValueId value) const;

  std::vector<int64_t> dims(size_t i, int64_t batch) const;
  // Bytes before entry i, and of all entries, for `batch` samples. BadInput if they are more than 2^62.
  int64_t offset(size_t i, int64_t batch) const;
  int64_t bytes(int64_t batch) const { return offset(size(), batch); }

  // Converts an array with the type and shape that the graph gives value i to its place in `block`, which has
  // bytes(batch) bytes. BadInput, naming the value, if an integer does not fit i32.
  void write(size_t i, const Array& array, int64_t batch, std::span<std::byte> block) const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace trifold::graph
