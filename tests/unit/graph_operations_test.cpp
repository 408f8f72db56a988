#include "graph/operations.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace trifold::graph {
namespace {

TEST(GraphOperations, EverySchemaCanBeParsedAndEveryNameOccursOnce) {
  std::set<std::string_view> names;
  for (const Operation& operation : operations()) {
    EXPECT_TRUE(names.insert(operation.name).second) << operation.name;
    EXPECT_NO_THROW(parameters_of(operation)) << operation.name;
    EXPECT_EQ(find_operation(operation.name), &operation);
    // What shares memory does so with the first argument.
    EXPECT_TRUE(operation.memory != Memory::View || operation.schema.starts_with("Tensor(a"))
        << operation.name;
  }
  EXPECT_EQ(find_operation("no_such_operation"), nullptr);
}

TEST(GraphOperations, ParametersHaveKindsAndDefaults) {
  const auto layer_norm = parameters_of(*find_operation("layer_norm"));
  ASSERT_EQ(layer_norm.size(), 6u);
  EXPECT_EQ(layer_norm[1].name, "normalized_shape");
  EXPECT_TRUE(layer_norm[1].is_list);
  EXPECT_FALSE(layer_norm[1].has_default);
  EXPECT_TRUE(layer_norm[2].optional);
  EXPECT_EQ(layer_norm[2].absent, Argument());
  EXPECT_EQ(layer_norm[4].absent, Argument(1e-5));
  EXPECT_EQ(layer_norm[5].absent, Argument(true));
  const auto gelu = parameters_of(*find_operation("gelu"));
  EXPECT_EQ(gelu.at(1).absent, Argument(std::string("none")));
  const auto slice = parameters_of(*find_operation("slice.Tensor"));
  EXPECT_EQ(slice.at(4).absent, Argument(Extent{1}));
  EXPECT_TRUE(slice.at(2).optional);
}

}  // namespace
}  // namespace trifold::graph
