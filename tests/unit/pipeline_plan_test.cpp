#include <gtest/gtest.h>

#include "core/error.h"
#include "pipeline/check.h"
#include "pipeline/passes.h"
#include "pipeline/schedules.h"

namespace trifold {
namespace {

const std::vector<int> kThreeBlocks{3};

Plan accumulation(int micros, std::vector<int> bucket_ends) {
  const std::vector<std::vector<int>> ends{std::move(bucket_ends)};
  return add_reduce(one_stage(micros), kThreeBlocks, ends);
}

TEST(Plan, OfOneStageAccumulatesThenReducesBlockByBlock) {
  EXPECT_EQ(to_string(accumulation(2, {1, 0})),
            "0F0,0B0,0F1,0B1@2,0B1@1,0REDUCE_GRAD@1,0B1@0,0REDUCE_GRAD@0,0STEP\n");
  EXPECT_NO_THROW(check_plan(accumulation(3, {2, 0}), 3, kThreeBlocks));
}

// Each plan breaks one rule; the error names the action at which it is broken.
TEST(Plan, CheckNamesTheActionThatIsWrong) {
  struct Wrong {
    const char* plan;
    const char* at;
  };
  const Wrong wrongs[] = {
      {"0B0,0F0,0F1,0B1,0STEP", "0B0"},                              // backward before forward
      {"0F0,0F0,0B0,0STEP", "0F0"},                                  // forward twice
      {"0F0,0B0,0B0,0STEP", "0B0"},                                  // backward twice
      {"0F0,0B0,0F2,0B2,0STEP", "0F2"},                              // no such micro-batch
      {"0F0,0F1,0B0,0B1@1,0B1@0,0STEP", "0B1@1"},                    // a block is left out
      {"0F0,0F1,0B0,0B1@2,0REDUCE_GRAD@1,0STEP", "0REDUCE_GRAD@1"},  // before its gradient is complete
      {"0F0,0F1,0B0,0STEP", "0STEP"},                                // a micro-batch has no backward
      {"0F0,0F1,0B0,0B1,0STEP,0REDUCE_GRAD", "0REDUCE_GRAD"},        // after the step
      {"0F0,0F1,0W0,0I0,0B1,0STEP", "0W0"},                          // W before I
      {"0F0,0F1,0B0,0B1,0REDUCE_GRAD,0REDUCE_GRAD,0STEP", "0REDUCE_GRAD"},
      {"1F0,1B0", "1F0"},  // no such stage
  };
  for (const Wrong& wrong : wrongs) {
    try {
      check_plan(parse_plan(wrong.plan), 2, kThreeBlocks);
      ADD_FAILURE() << wrong.plan << " was accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(std::string("at ") + wrong.at + ":"), std::string::npos)
          << error.what();
    }
  }
  EXPECT_THROW(check_plan(parse_plan("0F0,0B0,0F1,0B1"), 2, kThreeBlocks), Error);  // no step
  EXPECT_NO_THROW(check_plan(parse_plan("0F0,0F1,0I0,0I1,0W1,0W0,0REDUCE_GRAD,0STEP"), 2, kThreeBlocks));
}

}  // namespace
}  // namespace trifold
