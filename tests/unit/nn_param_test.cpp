#include "nn/param.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace trifold {
namespace {

ParamSpec spec_of(const Shape& global, const Rect& local) {
  ParamSpec spec;
  spec.shard = {"w", global, local, {Axis::Dp}, {Axis::Dp}};
  spec.init = {Init::Kind::Normal, 0.02};
  return spec;
}

std::vector<float> values(const ParamSpec& spec, uint64_t seed, int threads = 1) {
  ThreadPool pool(threads);
  std::vector<float> data(static_cast<size_t>(spec.shard.local.elements()));
  initialise(spec, {data.data(), DType::F32, spec.shard.local.extent}, seed, pool);
  return data;
}

// Threads divide the rows of a matrix, of a box in its middle, and of a vector.
TEST(Initialise, ThreadsGiveTheSameNumbers) {
  for (const auto& [global, local] :
       {std::pair(Shape{70, 300}, Rect{{3, 40}, {61, 201}}), std::pair(Shape{20000}, Rect{{100}, {19000}}),
        std::pair(Shape{3, 2, 9000}, Rect{{1, 0, 8}, {2, 2, 8900}})})
    EXPECT_EQ(values(spec_of(global, local), 7, 4), values(spec_of(global, local), 7));
}

// Any cut of a parameter starts from the very numbers of the whole one.
TEST(Initialise, IsKeyedByGlobalPosition) {
  const Shape global{3, 4, 6};
  const std::vector<float> whole = values(spec_of(global, Rect::whole(global)), 7);
  const Rect part{{1, 2, 3}, {2, 2, 3}};
  const std::vector<float> cut = values(spec_of(global, part), 7);
  size_t at = 0;
  for (size_t i = 1; i < 3; ++i)
    for (size_t j = 2; j < 4; ++j)
      for (size_t k = 3; k < 6; ++k) EXPECT_EQ(cut[at++], whole[(i * 4 + j) * 6 + k]);
  EXPECT_NE(values(spec_of(global, part), 8), cut);
}

TEST(Initialise, HasTheStandardDeviationAskedFor) {
  const Shape global{200, 300};
  double squares = 0;
  for (float v : values(spec_of(global, Rect::whole(global)), 7)) squares += double{v} * v;
  EXPECT_NEAR(std::sqrt(squares / 60'000), 0.02, 0.0003);
}

TEST(ParamList, CountsTiedUsesOnceAndOrdersByName) {
  ParamList params;
  ParamSpec b = spec_of({2, 2}, Rect::whole({2, 2}));
  b.shard.name = "b";
  ParamSpec a = b;
  a.shard.name = "a";
  const ParamId first = params.add(b);
  const ParamId second = params.add(a);
  ParamSpec tied = b;
  tied.shard.name = "b@head";
  tied.tied_to = first;
  params.add(tied);
  EXPECT_EQ(params.global_elements(), 8);
  EXPECT_EQ(params.by_name(), (std::vector<ParamId>{second, first}));
  EXPECT_EQ(params.find("a"), second);
  EXPECT_THROW(params.add(a), Error);
  EXPECT_THROW(params.find("c"), Error);
}

}  // namespace
}  // namespace trifold
