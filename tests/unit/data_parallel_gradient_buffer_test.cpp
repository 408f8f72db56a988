#include "data_parallel/gradient_buffer.h"

#include <gtest/gtest.h>

#include <limits>

#include "nn/layer.h"
#include "support/ranks.h"

namespace trifold::test {
namespace {

// Two parameters of each kind, alternating, in two blocks: every gradient is summed over its own axes
// wherever it lies.
ParamList two_kinds(const Mesh& mesh, bool sequence_parallel) {
  ParamList params;
  ReportList reports;
  for (int block = 0; block < 2; ++block) {
    BlockBuilder builder(params, reports, mesh, block, 1, sequence_parallel);
    const std::string name = std::to_string(block);
    builder.sharded(name + ".a", {4, 10}, 0, {}, true);
    builder.replicated(name + ".b", {7}, {}, false);
    builder.sharded(name + ".c", {8}, 0, {}, false);
    builder.replicated(name + ".d", {3, 3}, {}, true);
  }
  return params;
}

TEST(GradientBuffer, SumsEachGradientOverItsPartialAxes) {
  for (const bool sequence_parallel : {false, true}) {
    run_ranks(4, [&](Communicator& world) {
      const Mesh mesh(world, {{Axis::Tp, 2}, {Axis::Dp, 2}});
      OwnStream compute;
      OwnStream comm(Stream::Mode::Worker);
      const ParamList params = two_kinds(mesh, sequence_parallel);
      for (const int64_t unit_elements : {int64_t{1}, int64_t{1} << 20}) {
        const std::vector<int> blocks{0, 1};
        const FlatLayout layout(params, {blocks}, unit_elements, mesh.sizes(), 2);
        const DataGroups groups(mesh, 2, params);
        GradientBuffer grads(layout, GradLayout::whole(layout), groups, cpu_ops(), DType::F64, {}, comm);
        grads.restart(compute);
        // Rank r contributes 10^r + element: the sum shows which ranks took part.
        const double mine[] = {1, 10, 100, 1000};
        for (int i = 0; i < params.size(); ++i) {
          const Tensor g = grads.grad({i});
          grads.set_begun({i}, true);
          for (int64_t e = 0; e < g.elements(); ++e)
            g.as<double>()[e] = mine[world.rank()] + static_cast<double>(e) / 8;
        }
        for (int block : unit_ends(params, blocks, unit_elements)) grads.reduce(block, compute);
        grads.finish(compute);
        for (int i = 0; i < params.size(); ++i) {
          const bool everywhere = sequence_parallel && params[{i}].shard.replicated.has(Axis::Tp);
          const double ranks = everywhere ? 4 : 2;
          const double base = everywhere ? 1111 : mesh.coord(Axis::Tp) == 0 ? 101 : 1010;
          const Tensor g = grads.grad({i});
          for (int64_t e = 0; e < g.elements(); ++e)
            ASSERT_EQ(g.as<double>()[e], base + ranks * static_cast<double>(e) / 8)
                << params[{i}].shard.name << " element " << e;
        }
      }
    });
  }
}

// A parameter of which each data-parallel rank has a part of its own, as an expert's would be, beside one
// that they share: its gradient is summed over no data rank, and its slice is all of it.
TEST(GradientBuffer, ShardsOnlyParametersReplicatedOverDataRanks) {
  for (const bool slices : {false, true})
    run_ranks(4, [&](Communicator& world) {
      const Mesh mesh(world, {{Axis::Tp, 2}, {Axis::Dp, 2}});
      OwnStream compute;
      OwnStream comm(Stream::Mode::Worker);
      ParamList params;
      ReportList reports;
      BlockBuilder builder(params, reports, mesh, 0, 1);
      builder.replicated("shared", {600}, {}, false);
      ParamSpec own;
      own.shard.name = "own";
      own.shard.global = {2, 300};
      own.shard.local = even_part(own.shard.global, 0, mesh.coord(Axis::Dp), 2);
      own.shard.replicated = own.shard.partial = {Axis::Tp};
      params.add(own);
      const FlatLayout layout(params, {{0}}, 1, mesh.sizes(), 2);
      ASSERT_EQ(layout.units().size(), 2U);
      const DataGroups groups(mesh, 2, params);
      GradientBuffer grads(layout, GradLayout::whole(layout), groups, cpu_ops(), DType::F64,
                           {.slices = slices}, comm);
      grads.restart(compute);
      for (int i = 0; i < params.size(); ++i) grads.set_begun({i}, true);
      const double mine[] = {1, 10, 100, 1000};
      for (int i = 0; i < params.size(); ++i)
        std::fill_n(grads.grad({i}).as<double>(), grads.grad({i}).elements(), mine[world.rank()]);
      grads.reduce(0, compute);
      grads.finish(compute);
      const int dp = mesh.coord(Axis::Dp);
      const double expected[] = {mesh.coord(Axis::Tp) == 0 ? 101.0 : 1010.0, dp == 0 ? 11.0 : 1100.0};
      std::vector<int64_t> summed(2, 0);
      for (const FlatLayout::Unit& unit : layout.units())
        for (const FlatLayout::Segment& segment : grads.segments(unit)) {
          const Tensor sums = grads.summed(segment);
          const auto i = static_cast<size_t>(segment.id.index);
          for (int64_t e = 0; e < sums.elements(); ++e) ASSERT_EQ(sums.as<double>()[e], expected[i]);
          summed[i] += sums.elements();
        }
      EXPECT_EQ(summed[0], !slices ? 600 : dp == 0 ? 512 : 88);
      EXPECT_EQ(summed[1], 300);
    });
}

// Nothing is set to zero that is written anyway: what a step finds is what the last one left. What nobody
// wrote, and padding, is zero all the same.
TEST(GradientBuffer, OnlyUnwrittenGradientsBecomeZero) {
  run_ranks(1, [](Communicator& world) {
    const Mesh mesh(world, {{Axis::Dp, 1}});
    const ParamList params = two_kinds(mesh, false);
    const FlatLayout layout(params, {{0, 1}}, int64_t{1} << 20, mesh.sizes(), 1);
    const DataGroups groups(mesh, 1, params);
    OwnStream stream;
    GradientBuffer grads(layout, GradLayout::whole(layout), groups, cpu_ops(), DType::F64, {}, stream);
    const auto fill = [&](int index, double value) {
      const Tensor g = grads.grad({index});
      std::fill(g.as<double>(), g.as<double>() + g.elements(), value);
    };
    const auto step = [&](bool all) {
      grads.restart(stream);
      for (int i = 0; i < params.size(); i += all ? 1 : 2) {
        EXPECT_FALSE(grads.begun({i}));
        grads.set_begun({i}, true);
        fill(i, i + 1);
      }
      grads.reduce(0, stream);
      grads.finish(stream);
    };
    for (int i = 0; i < params.size(); ++i) fill(i, std::numeric_limits<double>::quiet_NaN());
    for (const bool all : {true, false}) {
      step(all);
      for (int i = 0; i < params.size(); ++i) {
        EXPECT_EQ(grads.grad({i}).as<double>()[0], all || i % 2 == 0 ? i + 1 : 0) << i;
        EXPECT_TRUE(grads.begun({i}));
      }
      const FlatLayout::Segment first = layout.segments(layout.units()[0], {})[0];
      EXPECT_EQ(grads.summed(first).as<double>()[first.count], 0) << "padding";
    }
    grads.restart(stream);
    EXPECT_EQ(grads.grad({1}).as<double>()[0], 0) << "nothing is touched";
    EXPECT_EQ(grads.grad({2}).as<double>()[0], 3) << "nothing is touched";
  });
}

// Adjacent segments form one run: for each unit, those with weight decay and those without.
TEST(FlatLayout, ParametersThatAreUpdatedAlikeFollowEachOther) {
  const Mesh mesh(MeshSizes{}, MeshCoords{});
  const ParamList params = two_kinds(mesh, false);
  const FlatLayout layout(params, {{0, 1}}, int64_t{1} << 20, mesh.sizes(), 1);
  ASSERT_EQ(layout.units().size(), 1U);
  const std::vector<FlatLayout::Segment> all = layout.segments(layout.units()[0], {});
  ASSERT_EQ(all.size(), 8U);
  const auto alike = [&](ParamId a, ParamId b) { return params[a].decay == params[b].decay; };
  const std::vector<FlatLayout::Segment> runs = FlatLayout::joined(all, alike);
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_TRUE(params[runs[0].id].decay);
  EXPECT_EQ(runs[0].count, 3 * kGrain + 9);  // three parameters with their padding, and d of 9
  EXPECT_EQ(runs[1].flat, 4 * kGrain);
  EXPECT_EQ(runs[1].count, 3 * kGrain + 8);
  EXPECT_EQ(FlatLayout::joined(all, [](ParamId, ParamId) { return true; }).size(), 1U);
  EXPECT_EQ(FlatLayout::joined(all, [](ParamId, ParamId) { return false; }).size(), 8U);
}

}  // namespace
}  // namespace trifold::test
