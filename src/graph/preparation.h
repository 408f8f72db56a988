// Preparation: computes on the host what the blocks of a graph read besides parameters and the values of other blocks.
//
// Values of a graph are of three kinds. Constants depend on constants and buffers only and are computed once. Prepared
// values depend also on the arrays of the batch, or on the number of its samples: masks, positions, labels; they are
// computed for each micro-batch, by the thread that reads ahead. All others depend on parameters, and blocks compute
// them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/function_ref.h"
#include "graph/array_layout.h"
#include "graph/graph.h"
#include "graph/host/array.h"
#include "graph/id_check.h"

namespace trifold::graph {

enum class Dependence : uint8_t { Constant, Prepared, Trained };

// The kind of each value of the graph. A frozen parameter is a parameter. The output of random dropout is Trained, as
// only blocks draw random numbers.
std::vector<Dependence> partition(const Graph& graph);

// A line for each reason why the host cannot compute `wanted`, values that are not Trained: nodes that cannot be
// evaluated, with module and line, and buffers that the model changes in each forward.
std::vector<std::string> preparation_problems(const Graph& graph, const std::vector<ValueId>& wanted);

class Preparation {
 public:
  // Computes the constants that `wanted`, values that are not Trained, depend on. `stored` gives the elements of a
  // buffer or constant, and is called for needed ones only. Floats of the layout are of the type `floats`, F32 or F64. `graph`
  // must outlive this object. `checks` of ids among the wanted values are made in each run. BadInput with all
  // preparation_problems, if there are some.
  Preparation(const Graph& graph, std::vector<ValueId> wanted, DType floats,
              FunctionRef<Array(const Input&)> stored, std::vector<IdCheck> checks = {});

  // The wanted values, in their order.
  const ArrayLayout& layout() const { return layout_; }
  // The arrays that `run` takes: the inputs of kind Data, in the order of the graph.
  const std::vector<Input>& data() const { return data_; }

  // The wanted values for `batch` samples of data. BadInput, naming the input, if an array has another type or shape
  // than the graph's; naming the value and the sample, for ids that do not exist; and for the errors of evaluate().
  // `samples`, if it is not empty, has the numbers of the samples, for messages. Several threads may call it.
  std::vector<Array> run(std::span<const Array> data, int64_t batch,
                         std::span<const int64_t> samples = {}) const;
  // Writes what `run` returns to a block with layout().bytes(batch) bytes. Bytes between arrays are left as they are.
  void write(std::span<const Array> data, int64_t batch, std::span<std::byte> block,
             std::span<const int64_t> samples = {}) const;

 private:
  // Where a value is: nowhere, computed once, in the data, or computed in each run.
  struct Place {
    enum class Kind : uint8_t { Unused, Constant, Data, Computed } kind = Kind::Unused;
    size_t index = 0;
  };
  class Values;

  void load_inputs(const std::vector<bool>& needed, FunctionRef<Array(const Input&)> stored);
  void fold_or_plan(const std::vector<bool>& needed, const std::vector<Dependence>& kinds);
  void find_last_uses();
  void drop_unread_constants();
  Place& place(ValueId id) { return places_[static_cast<size_t>(id.index)]; }
  const Place& place(ValueId id) const { return places_[static_cast<size_t>(id.index)]; }
  void check_data(std::span<const Array> data, int64_t batch) const;

  const Graph& graph_;
  std::vector<ValueId> wanted_;
  std::vector<IdCheck> checks_;
  ArrayLayout layout_;
  std::vector<Input> data_;
  std::vector<Place> places_;  // by value
  std::vector<Array> constants_;
  struct Step {
    const Node* node = nullptr;
    std::vector<size_t> last_uses;  // computed values that nothing reads after this step
  };
  std::vector<Step> steps_;  // in the order of execution
  size_t computed_ = 0;      // values that a run computes
};

}  // namespace trifold::graph
