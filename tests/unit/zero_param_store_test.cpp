#include "zero/param_store.h"

#include <gtest/gtest.h>

#include <latch>

#include "nn/layer.h"
#include "support/ranks.h"

namespace trifold::test {
namespace {

// Published weights that are still on their way hold up the blocks that read them, and no others.
TEST(ParamStore, BlocksWaitForTheirOwnWeightsAlone) {
  run_ranks(2, [](Communicator& world) {
    const Mesh mesh(world, {{Axis::Dp, 2}});
    ParamList params;
    ReportList reports;
    for (const int block : {0, 1})
      BlockBuilder(params, reports, mesh, block, 1).replicated(std::to_string(block), {512}, {}, true);
    const FlatLayout layout(params, {{0, 1}}, 1, mesh.sizes(), 2);
    const DataGroups groups(mesh, 2, params);
    OwnStream compute;
    OwnStream comm(Stream::Mode::Worker);
    ParamStore store(layout, groups, cpu_ops(), DType::F32, ParamStore::Options{}, comm);
    const auto value = [&](int block, int64_t element) { return store.weight({block}).as<float>()[element]; };
    // Each rank owns half of each unit, and writes its number there.
    for (const int block : {0, 1}) {
      const FlatLayout::Unit& unit = layout.units()[static_cast<size_t>(layout.units_ending_at(block).first)];
      for (const FlatLayout::Segment& segment : layout.segments(unit, groups.slice())) {
        const Tensor mine = store.owned(segment);
        std::fill_n(mine.as<float>(), mine.elements(), static_cast<float>(10 * block + world.rank() + 1));
      }
    }
    const auto publish = [&](int block) {
      store.publish(layout.units()[static_cast<size_t>(layout.units_ending_at(block).first)], 0, compute);
    };
    std::latch held(1);
    publish(0);
    static_cast<Stream&>(comm).run([&held] { held.wait(); });
    publish(1);
    store.end_update(compute);
    store.enter(0, compute);  // returns, though the weights of block 1 are not there
    for (const int64_t part : {0, 1}) EXPECT_EQ(value(0, part * 256), static_cast<float>(part + 1));
    held.count_down();
    store.enter(1, compute);
    for (const int64_t part : {0, 1}) EXPECT_EQ(value(1, part * 256), static_cast<float>(part + 11));
  });
}

// A parameter that each data-parallel rank has of its own is a unit besides those that are sharded: it
// comes and goes with them, and is on its rank alone.
TEST(ParamStore, GathersShardedAndWholeUnits) {
  run_ranks(2, [](Communicator& world) {
    const Mesh mesh(world, {{Axis::Dp, 2}});
    ParamList params;
    ReportList reports;
    BlockBuilder(params, reports, mesh, 0, 1).replicated("shared", {512}, {}, true);
    ParamSpec own;
    own.shard.name = "own";
    own.shard.global = {2, 300};
    own.shard.local = even_part(own.shard.global, 0, mesh.coord(Axis::Dp), 2);
    params.add(own);
    const FlatLayout layout(params, {{0}}, 1, mesh.sizes(), 2);
    const DataGroups groups(mesh, 2, params);
    OwnStream compute;
    OwnStream comm(Stream::Mode::Worker);
    ParamStore::Options how;
    how.sharded = true;
    ParamStore store(layout, groups, cpu_ops(), DType::F32, how, comm);
    for (const FlatLayout::Unit& unit : layout.units())
      for (const FlatLayout::Segment& segment : layout.segments(unit, groups.slice(unit.data))) {
        const Tensor mine = store.owned(segment);
        std::fill_n(mine.as<float>(), mine.elements(), static_cast<float>(world.rank() + 1));
      }
    store.finish(compute);
    store.reserve({{0, 1}});
    store.unshard(0, compute);
    store.enter(0, compute);
    const Tensor shared = store.weight({0});
    for (int64_t i = 0; i < 512; ++i) ASSERT_EQ(shared.as<float>()[i], i < 256 ? 1 : 2);
    const Tensor alone = store.weight({1});
    for (int64_t i = 0; i < 300; ++i) ASSERT_EQ(alone.as<float>()[i], static_cast<float>(world.rank() + 1));
    store.reshard(0, compute);
    EXPECT_THROW(store.weight({1}), Error);
  });
}

}  // namespace
}  // namespace trifold::test
