// Graphs of torch.export: models/model.json, for the tensors of the MLP in tests/data/own_models.
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "graph/describe.h"
#include "graph/pt2/read_pt2.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using trifold::graph::ElementType;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  static const std::vector<trifold::graph::StoredTensor> kTensors{
      {"calls", "calls", ElementType::I64, {}, {}, 0, false},
      {"first.bias", "b1", ElementType::F32, {8}, {1}, 0, true},
      {"first.weight", "w1", ElementType::F32, {8, 6}, {6, 1}, 0, true},
      {"last.bias", "b3", ElementType::F32, {4}, {1}, 0, true},
      {"last.weight", "w3", ElementType::F32, {4, 8}, {8, 1}, 0, true},
      {"second.bias", "b2", ElementType::F32, {8}, {1}, 0, true},
      {"second.weight", "w2", ElementType::F32, {8, 8}, {8, 1}, 0, true},
  };
  try {
    const auto model = trifold::graph::read_pt2(text, "file", kTensors);
    // Nodes read only earlier values, and the report never fails.
    for (const auto& node : model.graph.nodes)
      trifold::graph::each_read(node, [&](trifold::graph::ValueId id) {
        if (id.index >= static_cast<int>(model.graph.values.size())) __builtin_trap();
      });
    trifold::graph::describe(model.graph);
  } catch (const trifold::Error& error) {
    if (error.kind() != trifold::ErrorKind::BadInput) throw;  // ends the fuzzer
  }
  return 0;
}
