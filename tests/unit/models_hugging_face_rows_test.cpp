// Where the rows of parameters are in the tensors of transformers that hold several of them.
#include <gtest/gtest.h>

#include "core/error.h"
#include "models/hugging_face/hugging_face.h"

namespace trifold {
namespace {

WeightMap map_of_rows(const char* ours, int64_t rows, TensorRows theirs) {
  WeightMap map{ours, {rows, 4}, {}};
  map.theirs.push_back(std::move(theirs));
  return map;
}

std::vector<int64_t> places_of(const WeightMap& map) {
  std::vector<int64_t> places;
  for (const TensorRows& rows : map.theirs)
    for (int64_t row = 0; row < rows.rows();) {
      const TensorRows::Run run = rows.run_at(row);
      for (int64_t i = 0; i < run.count; ++i) places.push_back(run.first + i * run.stride);
      row += run.count;
    }
  return places;
}

TEST(TensorRows, FollowEachOtherInASharedTensor) {
  std::vector<WeightMap> maps{map_of_rows("query", 4, {"qkv", 1, 1, 4}),
                              map_of_rows("key_value", 2, {"qkv", 1, 1, 2}),
                              map_of_rows("out", 4, {"out", 1, 1, 4})};
  place_in_tensors(maps);
  EXPECT_EQ(places_of(maps[0]), (std::vector<int64_t>{0, 1, 2, 3}));
  EXPECT_EQ(places_of(maps[1]), (std::vector<int64_t>{4, 5}));
  EXPECT_EQ(maps[1].their_shape(maps[1].theirs[0]), (std::vector<int64_t>{6, 4}));
  EXPECT_EQ(places_of(maps[2]), (std::vector<int64_t>{0, 1, 2, 3}));
}

// Two groups of two heads of queries, a key and a value, of one row each.
TEST(TensorRows, AreGroupedByHeads) {
  std::vector<WeightMap> maps{map_of_rows("query", 4, {"qkv", 1, 2, 2}),
                              map_of_rows("key_value", 4, {"qkv", 2, 2, 1})};
  place_in_tensors(maps);
  EXPECT_EQ(places_of(maps[0]), (std::vector<int64_t>{0, 1, 4, 5}));
  EXPECT_EQ(places_of(maps[1]), (std::vector<int64_t>{2, 6, 3, 7}));
  EXPECT_EQ(maps[0].theirs[0].tensor_rows(), 8);
}

// Two experts of three rows of gates and three of what they multiply, which alternate in the tensor.
TEST(TensorRows, AlternateInEachMatrix) {
  std::vector<WeightMap> maps{map_of_rows("up", 12, {"gate_up", 2, 3, 1, 0, 0, 2})};
  place_in_tensors(maps);
  EXPECT_EQ(places_of(maps[0]), (std::vector<int64_t>{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11}));
  EXPECT_EQ(maps[0].theirs[0].run_at(1).count, 2);
  EXPECT_EQ(maps[0].theirs[0].tensor_rows(), 12);
  maps[0].fused = maps[0].transposed = true;
  EXPECT_EQ(maps[0].their_shape(maps[0].theirs[0]), (std::vector<int64_t>{2, 4, 6}));
  maps.push_back(map_of_rows("other", 12, {"gate_up", 1, 3, 4, 0, 0, 1}));
  EXPECT_THROW(place_in_tensors(maps), Error);
}

TEST(TensorRows, ShareATensorOnlyWithEqualGroups) {
  std::vector<WeightMap> maps{map_of_rows("query", 4, {"qkv", 1, 2, 2}),
                              map_of_rows("key_value", 4, {"qkv", 2, 1, 2})};
  EXPECT_THROW(place_in_tensors(maps), Error);
}

}  // namespace
}  // namespace trifold
