#include "nn/reports.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"

namespace trifold {
namespace {

TEST(LossTerms, OfOneNameAreOne) {
  LossTerms terms;
  const LossTermId first = terms.declare("first"), second = terms.declare("second");
  EXPECT_EQ(terms.declare("first").index, first.index);
  EXPECT_NE(first.index, second.index);
  EXPECT_EQ(terms.find("second")->index, second.index);
  EXPECT_FALSE(terms.find("third"));
}

TEST(LossTerms, AreAsManyAsThereIsRoomFor) {
  LossTerms terms;
  for (int i = 0; i < kMostLossTerms; ++i) terms.declare(std::to_string(i));
  EXPECT_NO_THROW(terms.declare("0"));
  EXPECT_THROW(terms.declare("one more"), Error);
}

TEST(LossTerms, MayBeShown) {
  ReportList reports;
  reports.loss_terms.declare("hidden");
  const LossTermId shown = reports.declare_shown("shown");
  EXPECT_EQ(reports.declare_shown("shown").index, shown.index);
  EXPECT_EQ(reports.loss_terms.find("shown")->index, shown.index);
  EXPECT_EQ(reports.shown_terms, std::vector<std::string>{"shown"});
}

TEST(BlockReports, LieOneAfterTheOther) {
  BlockReports<CounterId> counters;
  const CounterId first = counters.declare(0, "a", 3), second = counters.declare(0, "b", 1);
  const CounterId third = counters.declare(2, "a", 2);
  EXPECT_EQ(first.first, 0);
  EXPECT_EQ(second.first, 3);
  EXPECT_EQ(third.first, 4);
  EXPECT_EQ(counters.elements(), 6);
  EXPECT_EQ(counters.find(2, "a")->first, 4);
  EXPECT_EQ(counters.find(2, "a")->count, 2);
  EXPECT_FALSE(counters.find(2, "b"));
  // Layers of one block may each have one of a name.
  const CounterId fourth = counters.declare(2, "a", 2);
  EXPECT_EQ(fourth.first, 6);
  EXPECT_EQ(counters.find(2, "a", 1)->first, 6);
  EXPECT_FALSE(counters.find(2, "a", 2));
}

}  // namespace
}  // namespace trifold
