#include "tensor_parallel/regions.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "support/ranks.h"

namespace trifold::test {
namespace {

class NoParams final : public ParamSource {
 public:
  Tensor weight(ParamId) const override { fail("there are no parameters"); }
};

// Everything that a tensor rank needs to cross the border of a region.
class Border {
 public:
  Border(Communicator& world, bool sequence_parallel)
      : mesh(world, {{Axis::Tp, world.size()}}),
        region(BlockBuilder(params_, reports_, mesh, 0, 1, sequence_parallel)),
        run{stream_, stream_, cpu_ops(),  mesh, weights_, nullptr, &keep, &flow_,
            scratch, nullptr, DType::F64, true, 0,        1.0,     {},    {}} {}

  Mesh mesh;
  Arena keep{1 << 16}, scratch{1 << 16};
  Region region;

 private:
  ParamList params_;
  ReportList reports_;
  NoParams weights_;
  OwnStream own_;
  Stream& stream_ = own_.get();
  Arena flow_{1 << 10};

 public:
  Run run;
};

std::vector<double> values(Tensor t) { return {t.as<double>(), t.as<double>() + t.elements()}; }

std::vector<double> counting(int64_t count, double first) {
  std::vector<double> numbers(static_cast<size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

TEST(Region, GathersThePartsOfAllRanks) {
  run_ranks(3, [](Communicator& world) {
    Border border(world, false);
    std::vector<double> mine = counting(2, 10.0 * world.rank());
    const Tensor all = border.region.gather_parts(border.run, {mine.data(), DType::F64, {2}}, border.scratch);
    EXPECT_EQ(values(all), (std::vector<double>{0, 1, 10, 11, 20, 21}));
  });
}

TEST(Region, GathersTheSlicesInRankOrder) {
  run_ranks(3, [](Communicator& world) {
    Border border(world, true);
    const std::vector<double> whole = counting(6 * 2, 0);  // [6, 2]: two rows a rank
    std::vector<double> copy = whole;
    const Tensor all{copy.data(), DType::F64, {6, 2}};
    const Tensor mine = border.region.own_rows(all);
    EXPECT_EQ(mine.shape, (Shape{2, 2}));
    EXPECT_EQ(mine.as<double>()[0], 4.0 * world.rank());
    const Tensor again = border.region.gather_rows(border.run, mine, border.scratch, border.run.stream);
    EXPECT_EQ(values(again), whole);
    EXPECT_EQ(border.region.rows_inside(2), 6);
  });
}

TEST(Region, SumsTheResultsOfItsRanks) {
  for (const bool slices : {false, true}) {
    run_ranks(2, [&](Communicator& world) {
      Border border(world, slices);
      // The result may lie in scratch itself, and then outlives the partial sum.
      const Region::Sum sum = border.region.take_sum(border.run, border.scratch, 4, 3);
      const double first = world.rank() == 0 ? 0 : 100;
      for (int64_t i = 0; i < 12; ++i) sum.partial.as<double>()[i] = first + static_cast<double>(i);
      border.region.add_up(border.run, sum, border.run.stream);
      border.scratch.release(sum.mark);
      EXPECT_EQ(border.scratch.used() > 0, true);
      EXPECT_EQ(sum.result.dim(0), slices ? 2 : 4);
      const int64_t skipped = slices ? 6 * world.rank() : 0;
      for (int64_t i = 0; i < sum.result.elements(); ++i)
        EXPECT_EQ(sum.result.as<double>()[i], 100 + 2 * static_cast<double>(i + skipped));
    });
  }
}

TEST(Region, OfOneRankMovesNothing) {
  run_ranks(1, [](Communicator& world) {
    Border border(world, true);  // the flag has no meaning on one rank
    EXPECT_TRUE(border.region.alone());
    EXPECT_FALSE(border.region.slices());
    std::vector<double> numbers = counting(6, 0);
    const Tensor x{numbers.data(), DType::F64, {3, 2}};
    EXPECT_EQ(border.region.gather_rows(border.run, x, border.scratch, border.run.stream).data, x.data);
    EXPECT_EQ(border.region.own_rows(x).shape, x.shape);
    const Region::Sum sum = border.region.take_sum(border.run, border.keep, 3, 2);
    EXPECT_EQ(sum.partial.data, sum.result.data);
    EXPECT_EQ(border.scratch.peak(), 0U);
  });
}

TEST(Region, SaysWhichRowsCannotBeCut) {
  run_ranks(2, [](Communicator& world) {
    const Border border(world, true);
    try {
      border.region.rows_outside(15);
      ADD_FAILURE() << "15 rows were cut in two";
    } catch (const Error& error) {
      const std::string text = error.what();
      EXPECT_NE(text.find("15 rows"), std::string::npos) << text;
      EXPECT_NE(text.find("multiple of 2"), std::string::npos) << text;
    }
  });
}

// Whatever its layer declares, a parameter that is applied to only some rows is partial over the tensor axis.
TEST(Region, PartialGradientsFollowFromTheRows) {
  run_ranks(2, [](Communicator& world) {
    for (const bool slices : {false, true}) {
      const Mesh mesh(world, {{Axis::Tp, 2}});
      ParamList params;
      ReportList reports;
      BlockBuilder builder(params, reports, mesh, 0, 1, slices);
      const ParamId gain = builder.replicated("gain", {4}, {}, false);
      const ParamId weight = builder.sharded("weight", {4, 4}, 0, {}, true);
      EXPECT_EQ(params[gain].shard.partial.has(Axis::Tp), slices);
      EXPECT_FALSE(params[weight].shard.partial.has(Axis::Tp));
      EXPECT_EQ(builder.row_part(), slices ? world.rank() : 0);
    }
  });
}

}  // namespace
}  // namespace trifold::test
