#include "zero/quantized_segment.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "config/fields/model_config.h"
#include "nn/product_weight.h"
#include "support/ranks.h"
#include "zero/param_store.h"

namespace trifold {
namespace {

using test::OwnStream;

// Two quantized matrices beside a frozen and a trained vector, on `ranks` data-parallel ranks.
FlatLayout layout_of(BaseWeights type, int ranks) {
  const Mesh mesh{MeshSizes{{Axis::Dp, ranks}}, MeshCoords()};
  ParamList params;
  ReportList reports;
  AdapterConfig adapters;
  adapters.quantize_base = type;
  BlockBuilder builder(params, reports, mesh, 0, 1);
  builder.adapt(&adapters);
  const Init normal{Init::Kind::Normal, 0.1};
  ProductWeight(builder, builder.sharded("up", {2, 65, 70}, 1, normal, true), ProductWeight::Cut::Outputs);
  builder.replicated("norm", {70}, {Init::Kind::Ones}, false);
  ProductWeight(builder, builder.sharded("down", {130, 67}, 1, normal, true), ProductWeight::Cut::Inputs);
  builder.freeze(builder.replicated("bias", {70}, {}, false), false);
  return {std::move(params), {{0}}, 1, mesh.sizes(), ranks};
}

const FlatLayout::Unit& quantized_unit(const FlatLayout& layout) {
  for (const FlatLayout::Unit& unit : layout.units())
    if (unit.quantized) return unit;
  fail("no unit is quantized");
}

// The bytes of a unit, filled slice by slice with random values.
std::vector<uint8_t> bytes_of(const FlatLayout& layout, int slices) {
  const FlatLayout::Unit& unit = quantized_unit(layout);
  std::vector<uint8_t> bytes(static_cast<size_t>(unit.elements()));
  OwnStream stream;
  ThreadPool pool(1);
  for (int slice = 0; slice < slices; ++slice)
    for (const FlatLayout::Segment& segment :
         layout.segments(unit, slices == 1 ? std::nullopt : std::optional(slice)))
      fill_quantized(
          layout, segment, {bytes.data() + (segment.flat - unit.begin), DType::U8, {segment.count}},
          [&](const Rect& box, Tensor values) {
            ParamSpec spec = layout.params()[segment.id];
            spec.shard.local = box;
            initialise(spec, values, 3, pool);
          },
          cpu_ops(), stream);
  return bytes;
}

TEST(QuantizedSegments, AreTheSameInSlices) {
  for (const BaseWeights type : {BaseWeights::Int8, BaseWeights::Nf4}) {
    const std::vector<uint8_t> whole = bytes_of(layout_of(type, 1), 1);
    std::vector<uint8_t> sliced = bytes_of(layout_of(type, 4), 4);
    ASSERT_GE(sliced.size(), whole.size());
    sliced.resize(whole.size());
    EXPECT_EQ(sliced, whole);
    EXPECT_GT(std::count_if(whole.begin(), whole.end(), [](uint8_t byte) { return byte != 0; }), 1000);
  }
}

TEST(QuantizedSegments, AreUnitsOfBytesBehindAllOthers) {
  const FlatLayout layout = layout_of(BaseWeights::Nf4, 2);
  const FlatLayout::Unit& unit = quantized_unit(layout);
  EXPECT_EQ(layout.units().size(), 3U);
  EXPECT_EQ(unit.params.size(), 2U);
  EXPECT_TRUE(unit.frozen);
  EXPECT_EQ(unit.begin, layout.plain_elements());
  EXPECT_EQ(unit.end, layout.elements());
  // Rows of 35 and 34 bytes, and scales for each row's two blocks and for each column's three.
  const int64_t up = 130 * 35 + 10, down = 130 * 34 + 12;
  EXPECT_EQ(layout.params()[{0}].stored_length(), up + 2 * 130 * 2);
  EXPECT_EQ(layout.params()[layout.params().find("down")].stored_length(), down + 2 * 3 * 67);
  EXPECT_EQ(layout.bytes(0, layout.elements(), DType::F32),
            static_cast<size_t>(4 * layout.plain_elements() + unit.elements()));
  EXPECT_EQ(layout.shard_bytes(0, layout.shard_elements(), DType::BF16),
            static_cast<size_t>(2 * layout.plain_shard_elements() + unit.elements() / 2));
  EXPECT_EQ(layout.largest_slice_bytes(DType::F64), static_cast<size_t>(unit.elements() / 2));
}

// Random numbers that are quantized, only to be replaced by those of the model's files, take minutes.
TEST(QuantizedSegments, AreZerosUntilTheyAreFilled) {
  const FlatLayout layout = layout_of(BaseWeights::Nf4, 1);
  test::run_ranks(1, [&](Communicator& world) {
    const Mesh mesh(world, {{Axis::Dp, 1}});
    const DataGroups groups(mesh, 1, layout.params());
    OwnStream stream;
    ParamStore weights(layout, groups, cpu_ops(), DType::F32, ParamStore::Options{}, stream);
    weights.initialise(3, stream);
    for (const FlatLayout::Segment& segment : layout.segments(quantized_unit(layout), {})) {
      const Tensor stored = weights.owned(segment);
      EXPECT_EQ(std::count(stored.as<uint8_t>(), stored.as<uint8_t>() + segment.count, 0), segment.count);
    }
    EXPECT_EQ(weights.weight(layout.params().find("norm")).as<float>()[0], 1);
  });
}

TEST(QuantizedSegments, NameWhatCannotBeQuantized) {
  const FlatLayout layout = layout_of(BaseWeights::Int8, 1);
  const FlatLayout::Segment segment = layout.segments(quantized_unit(layout), {}).front();
  std::vector<uint8_t> bytes(static_cast<size_t>(segment.count));
  OwnStream stream;
  try {
    fill_quantized(
        layout, segment, {bytes.data(), DType::U8, {segment.count}},
        [](const Rect&, Tensor values) {
          std::fill_n(values.as<float>(), values.elements(), std::numeric_limits<float>::quiet_NaN());
        },
        cpu_ops(), stream);
    FAIL() << "NaN was quantized";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("quantizing "), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace trifold
