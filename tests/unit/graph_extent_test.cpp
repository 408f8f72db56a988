#include "graph/pt2/extent.h"

#include <gtest/gtest.h>

namespace trifold::graph {
namespace {

const BatchSymbols kBatch{"s0", "s86"};
const std::string kSymbol = "Symbol('s0', positive=True, integer=True)";

TEST(GraphExtent, ConstantsAndMultiplesOfTheBatch) {
  EXPECT_EQ(extent_of("Integer(7)", kBatch), (Extent{7}));
  EXPECT_EQ(extent_of(kSymbol, kBatch), (Extent{1, true}));
  EXPECT_EQ(extent_of("Symbol('s86')", kBatch), (Extent{1, true}));
  EXPECT_EQ(extent_of("Mul(Integer(8), " + kSymbol + ")", kBatch), (Extent{8, true}));
  EXPECT_EQ(extent_of("Add(" + kSymbol + ", Mul(Integer(2), " + kSymbol + "))", kBatch), (Extent{3, true}));
  EXPECT_EQ(extent_of("FloorDiv(Mul(Integer(8), " + kSymbol + "), Integer(4))", kBatch), (Extent{2, true}));
  EXPECT_EQ(extent_of("FloorDiv(Mul(Integer(8), " + kSymbol + "), " + kSymbol + ")", kBatch), (Extent{8}));
  EXPECT_EQ(to_text({{1, true}, {8}, {2, true}}), "[batch, 8, 2*batch]");
}

TEST(GraphExtent, NothingElse) {
  for (const std::string& text :
       {std::string(), std::string("Integer(x)"), std::string("Integer(99999999999999999999)"),
        std::string("s0"), std::string("Symbol('s1')"), "Add(" + kSymbol + ", Integer(1))",
        "Mul(" + kSymbol + ", " + kSymbol + ")", "FloorDiv(" + kSymbol + ", Integer(2))",
        "FloorDiv(" + kSymbol + ", Integer(0))", "Max(" + kSymbol + ")", kSymbol + ")", std::string("Mul("),
        std::string("Mul(Integer(4611686018427387904), Integer(4))")})
    EXPECT_EQ(extent_of(text, kBatch), std::nullopt) << text;
  std::string deep;
  for (int i = 0; i < 500; ++i) deep += "Mul(";
  EXPECT_EQ(extent_of(deep, kBatch), std::nullopt);
}

TEST(GraphExtent, OnlyAPlainSymbolNamesTheBatch) {
  EXPECT_EQ(symbol_of(kSymbol), "s0");
  EXPECT_EQ(symbol_of("Mul(Integer(8), " + kSymbol + ")"), "");
  EXPECT_EQ(symbol_of(kSymbol + "x"), "");
}

}  // namespace
}  // namespace trifold::graph
