#include "graph/preparation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "graph/operations.h"
#include "graph/pt2/archive.h"
#include "graph/pt2/read_array.h"
#include "graph/pt2/read_pt2.h"
#include "support/files.h"

namespace trifold::graph {
namespace preparation_test {
namespace {

using test::error_of;

// data ids [batch, 2] i64, buffer table [2] i64, parameter w [2] f32.
class Small {
 public:
  Small() {
    ids = input("ids", ElementType::I64, {{1, true}, {2}}, InputKind::Data);
    table = input("table", ElementType::I64, {{2}}, InputKind::Buffer);
    w = input("w", ElementType::F32, {{2}}, InputKind::Parameter);
  }

  ValueId input(const std::string& name, ElementType type, std::vector<Extent> dims, InputKind kind) {
    const ValueId value = graph.add({name, type, std::move(dims)});
    graph.inputs.push_back({value, kind, name, kind == InputKind::Parameter, -1});
    return value;
  }
  ValueId node(const std::string& name, std::vector<Argument> arguments, ElementType type,
               std::vector<Extent> dims) {
    const ValueId value = graph.add({fmt::format("{}_{}", name, graph.nodes.size()), type, std::move(dims)});
    graph.nodes.push_back({find_operation(name), name, std::move(arguments), {value}, {}});
    graph.nodes.back().origin.node = fmt::format("n{}", graph.nodes.size());
    return value;
  }
  Dependence kind(ValueId id) const { return partition(graph)[static_cast<size_t>(id.index)]; }
  Preparation prepare(std::vector<ValueId> wanted, DType floats = DType::F32) {
    return {graph, std::move(wanted), floats, [this](const Input& input) {
              reads.push_back(input.name);
              Array array = make_array(ElementType::I64, {2});
              array.as<int64_t>()[0] = 10;
              array.as<int64_t>()[1] = 20;
              return array;
            }};
  }

  Graph graph;
  ValueId ids, table, w;
  std::vector<std::string> reads;
};

Array ids_of(int64_t batch, int64_t first = 0) {
  Array array = make_array(ElementType::I64, {batch, 2});
  std::iota(array.as<int64_t>(), array.as<int64_t>() + 2 * batch, first);
  return array;
}

const std::vector<Extent> kTwo{{2}}, kEach{{1, true}, {2}};

TEST(Preparation, ValuesAreConstantOrPreparedOrTrained) {
  Small m;
  const ValueId twice = m.node("add.Tensor", {m.table, m.table, Extent{1}}, ElementType::I64, kTwo);
  const ValueId shifted = m.node("add.Tensor", {m.ids, twice, Extent{1}}, ElementType::I64, kEach);
  const ValueId scaled = m.node("mul.Tensor", {m.w, shifted}, ElementType::F32, kEach);
  const ValueId made = m.node("arange", {Extent{1, true}, {}, {}, {}, {}}, ElementType::I64, {{1, true}});
  const ValueId fixed = m.node("arange", {Extent{2}, {}, {}, {}, {}}, ElementType::I64, kTwo);
  const ValueId noise = m.node("dropout", {shifted, 0.5, true}, ElementType::I64, kEach);
  const ValueId none = m.node("dropout", {shifted, 0.5, false}, ElementType::I64, kEach);
  EXPECT_EQ(m.kind(twice), Dependence::Constant);
  EXPECT_EQ(m.kind(shifted), Dependence::Prepared);
  EXPECT_EQ(m.kind(scaled), Dependence::Trained);
  EXPECT_EQ(m.kind(made), Dependence::Prepared);
  EXPECT_EQ(m.kind(fixed), Dependence::Constant);
  EXPECT_EQ(m.kind(noise), Dependence::Trained);
  EXPECT_EQ(m.kind(none), Dependence::Prepared);
}

TEST(Preparation, WritesWantedValuesInTheTypesOfTheBorder) {
  Small m;
  const ValueId twice = m.node("add.Tensor", {m.table, m.table, Extent{1}}, ElementType::I64, kTwo);
  const ValueId shifted = m.node("add.Tensor", {m.ids, twice, Extent{1}}, ElementType::I64, kEach);
  const ValueId large = m.node("gt.Scalar", {shifted, Extent{41}}, ElementType::Bool, kEach);
  m.node("mul.Tensor", {m.w, shifted}, ElementType::F32, kEach);
  const Preparation preparation = m.prepare({large, shifted, m.ids, twice});
  EXPECT_EQ(m.reads, std::vector<std::string>{"table"});
  const ArrayLayout& layout = preparation.layout();
  EXPECT_EQ(layout.entry(0).dtype, DType::F32);
  EXPECT_EQ(layout.entry(1).dtype, DType::I32);
  EXPECT_EQ(layout.dims(0, 3), (std::vector<int64_t>{3, 2}));
  EXPECT_EQ(layout.find(shifted), std::optional<size_t>(1));
  EXPECT_EQ(layout.find(m.w), std::nullopt);
  // 10 samples of two numbers of 4 bytes are 80 bytes.
  EXPECT_EQ(layout.offset(1, 10), 128);
  EXPECT_EQ(layout.offset(3, 10), 384);
  EXPECT_EQ(layout.bytes(10), 448);
  std::vector<std::byte> block(static_cast<size_t>(layout.bytes(2)));
  preparation.write(std::vector{ids_of(2)}, 2, block);
  std::vector<float> mask(4);
  std::memcpy(mask.data(), block.data(), 16);
  EXPECT_EQ(mask, (std::vector<float>{0, 0, 0, 1}));
  std::vector<int32_t> sums(4);
  std::memcpy(sums.data(), block.data() + layout.offset(1, 2), 16);
  EXPECT_EQ(sums, (std::vector<int32_t>{20, 41, 22, 43}));
  std::memcpy(sums.data(), block.data() + layout.offset(3, 2), 8);
  EXPECT_EQ(sums[1], 40);
  const std::vector<Array> arrays = preparation.run(std::vector{ids_of(2)}, 2);
  EXPECT_EQ(arrays[1].as<int64_t>()[3], 43);
  EXPECT_EQ(arrays[2].as<int64_t>()[3], 3);
  EXPECT_EQ(arrays[3].as<int64_t>()[0], 20);
}

TEST(Preparation, ListsAllOperationsThatItCannotCompute) {
  Small m;
  const ValueId first = m.node("torch.ops.other.first", {m.ids}, ElementType::I64, kEach);
  const ValueId second = m.node("dropout", {m.ids, 0.5, false}, ElementType::I64, kEach);
  const ValueId third = m.node("layer_norm", {second, kTwo, {}, {}, 1e-5, true}, ElementType::I64, kEach);
  m.node("torch.ops.other.unread", {m.ids}, ElementType::I64, kEach);
  EXPECT_EQ(error_of([&] {
              m.prepare({first, second, third});
            }),
            "the arrays that the model reads cannot be prepared:\n"
            "  node 'n1' (torch.ops.other.first): the operation is not known\n"
            "  node 'n3' (layer_norm): the host cannot compute it from arrays of the batch and constants");
}

TEST(Preparation, RefusesBuffersThatChangeAndValuesOfParameters) {
  Small m;
  const ValueId shifted = m.node("add.Tensor", {m.ids, m.table, Extent{1}}, ElementType::I64, kEach);
  const ValueId scaled = m.node("mul.Tensor", {m.w, shifted}, ElementType::F32, kEach);
  EXPECT_NE(error_of([&] { m.prepare({scaled}); }, ErrorKind::Failure).find("depends on parameters"),
            std::string::npos);
  m.graph.outputs.push_back({shifted, "table"});
  EXPECT_NE(error_of([&] { m.prepare({shifted}); }).find("the buffer 'table'"), std::string::npos);
  m.prepare({m.ids});
}

TEST(Preparation, NamesAnIntegerThatDoesNotFitAndAnArrayOfAnotherShape) {
  Small m;
  const Preparation preparation = m.prepare({m.ids});
  std::vector<std::byte> block(static_cast<size_t>(preparation.layout().bytes(2)));
  const auto refusal = [&](const Array& ids) {
    return error_of([&] { preparation.write(std::vector{ids}, 2, block); });
  };
  EXPECT_EQ(refusal(ids_of(2, int64_t{1} << 31)),
            "value 'ids' has the element 2147483651; integers that the model reads must fit 32 bits");
  EXPECT_EQ(refusal(ids_of(3)),
            "the array 'ids' is i64 [3, 2], but the model takes i64 [2, 2] for 2 samples");
}

// Everything that GPT-2's layers read besides parameters, made by PyTorch's own export.
TEST(Preparation, PreparesWhatTheLayersOfGpt2Read) {
  const Archive archive(std::string(TRIFOLD_TEST_DATA) + "/data/own_models/gpt2.pt2");
  const std::vector<StoredTensor> tensors = archive.tensors();
  const Graph graph = read_pt2(archive.model_text(), "gpt2", tensors).graph;
  const std::vector<Dependence> kinds = partition(graph);
  std::vector<ValueId> wanted{graph.outputs.at(1).value};
  const auto trained = [&](ValueId id) {
    return kinds[static_cast<size_t>(id.index)] == Dependence::Trained;
  };
  for (const Node& node : graph.nodes)
    if (trained(node.outputs.at(0)))
      each_read(node, [&](ValueId id) {
        if (!trained(id) && std::find(wanted.begin(), wanted.end(), id) == wanted.end()) wanted.push_back(id);
      });
  ASSERT_GE(wanted.size(), 4U);  // also ids, positions and labels
  const Preparation preparation(graph, wanted, DType::F32,
                                [&](const Input& input) { return read_array(archive, tensors, input.name); });
  std::vector<Array> data;
  for (const Input& input : preparation.data()) {
    data.push_back(zero_array(graph.at(input.value).type, {2, 8}));
    data.back().as<int64_t>()[3] = -100;
  }
  const std::vector<Array> arrays = preparation.run(data, 2);
  EXPECT_EQ(arrays.size(), wanted.size());
  const auto count = preparation.layout().find(graph.outputs.at(1).value);
  ASSERT_TRUE(count.has_value());
  EXPECT_EQ(*arrays[*count].as<int64_t>(), 15);  // labels that are not -100
}

}  // namespace
}  // namespace preparation_test
}  // namespace trifold::graph
