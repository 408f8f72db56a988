#include "nn/reports.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace trifold
