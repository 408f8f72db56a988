// Which tables the columns of ids look up, and the memory of arranging their bags.
#include "embedding/table_groups.h"

#include <gtest/gtest.h>

#include "support/files.h"

namespace trifold::test {
namespace {

ClickSchema shared_schema() {
  ClickSchema schema{1, {{"item", 10, 1}, {"history", 10, 3}, {"user", 5, 2}}, "none", false};
  schema.tables[1].shares = "item";
  return schema;
}

TEST(TableGroups, RefusesTablesThatCannotBeShared) {
  const auto with = [](auto change) {
    ClickSchema schema = shared_schema();
    change(schema.tables);
    return error_of([&] { table_uses(schema, 4, 0); });
  };
  EXPECT_EQ(table_uses(shared_schema(), 4, 0).tables.size(), 2U);
  expect_has(with([](auto& tables) { tables[1].shares = "items"; }),
             "table history shares the rows of items, which is no table");
  for (const size_t keyed : {0, 1})
    expect_has(with([&](auto& tables) { tables[keyed].mapping = std::string(ClickTable::kKeys) + "texts"; }),
               "table history has keys and shares the rows of item");
}

TEST(TableGroups, BagBatchKnowsItsMemory) {
  for (const bool weighted : {false, true}) {
    ClickSchema schema = shared_schema();
    schema.weighted = weighted;
    const TableUses uses = table_uses(schema, 4, 0, {1});
    const std::vector<TableGroup> groups =
        group_tables(Placement(uses.tables, std::vector<TablePlacement>(uses.tables.size()), 1, 0));
    ASSERT_EQ(groups.size(), 2U);
    for (const TableGroup& group : groups) {
      const size_t bytes = BagBatch::bytes(uses, group, schema, 7);
      EXPECT_EQ(BagBatch(uses, group, schema, 7).bytes(), bytes);
      // 4 bags of a sample, with as many ids.
      EXPECT_EQ(bytes, group.bags == 1 ? 0U : 7U * (4 + 4 * (weighted ? 2 : 1)) * 4);
    }
  }
}

}  // namespace
}  // namespace trifold::test
