#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "schedule/action.h"
#include "unit/schedule_testing.h"

namespace trifold {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_plan(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
  }
  return "no error";
}

TEST(Action, TextReadsBack) {
  for (const char* text : {"0F0",
                           "12B3",
                           "0I3",
                           "1W2",
                           "0SEND_F1",
                           "1RECV_F1",
                           "1SEND_B1",
                           "0RECV_B1",
                           "0UNSHARD",
                           "3RESHARD",
                           "0REDUCE_TIED",
                           "3REDUCE_GRAD",
                           "0STEP",
                           "0B1@4",
                           "0REDUCE_GRAD@4",
                           "0REDUCE_GRAD1",
                           "0REDUCE_GRAD1@4",
                           "0F5v2",
                           "0B5v2",
                           "0W5@3v12",
                           "0F1@2",
                           "0OFFLOAD3@1",
                           "1FETCH12@0"})
    EXPECT_EQ(to_string(parse_action(text)), text);
}

TEST(Action, TextNamesEachField) {
  EXPECT_EQ(parse_action(" 3RECV_B7\r"), (Action{ActionKind::RecvB, 3, Action::kAll, 7}));
  EXPECT_EQ(parse_action("0B5@3v2"), (Action{ActionKind::B, 0, 3, 5, 2}));
  EXPECT_EQ(parse_action("0F5v0"), (Action{ActionKind::F, 0, Action::kAll, 5}));
  EXPECT_EQ(parse_action("2UNSHARD"), (Action{ActionKind::Unshard, 2}));
}

TEST(Action, RefusesTextThatIsNoAction) {
  for (const char* text : {"",
                           "F0",
                           "0",
                           "0F",
                           "0X1",
                           "0F1x",
                           "-1F0",
                           "0F-1",
                           "0B1@",
                           "0STEP1",
                           "99999999999F0",
                           "0SEND1",
                           "0SEND_F",
                           "0SEND_F1v2",
                           "0SEND_F1@2",
                           "0FETCH",
                           "0OFFLOAD@2",
                           "0OFFLOAD1@2v1",
                           "0UNSHARD3",
                           "0B1v",
                           "0B1v2@3",
                           "0STEPv1",
                           "(0F1;0B1)OVERLAP_F_B"})
    EXPECT_THROW(parse_action(text), Error) << text;
}

TEST(Action, RowsOfAPlan) {
  const Plan plan = parse_plan("0F0, ,0B0\r\n\n1F0");
  EXPECT_EQ(plan, (Plan{{parse_action("0F0"), parse_action("0B0")}, {parse_action("1F0")}}));
  EXPECT_EQ(to_string(plan), "0F0,0B0\n1F0\n");
}

TEST(Action, AnOverlappedPairIsTwoActions) {
  const Plan plan = parse_plan("7F3,(0F7;7B3)OVERLAP_F_B,(7B4;0F8)OVERLAP_F_B\n");
  ASSERT_EQ(plan.at(0).size(), 5U);
  EXPECT_TRUE(plan[0][1].overlaps_next);
  EXPECT_FALSE(plan[0][2].overlaps_next);
  EXPECT_EQ(to_string(plan[0][1]), "0F7");
  EXPECT_EQ(to_string(plan[0][2]), "7B3");
  EXPECT_EQ(to_string(plan), "7F3,(0F7;7B3)OVERLAP_F_B,(7B4;0F8)OVERLAP_F_B\n");
}

TEST(Action, ErrorsNameRowAndCell) {
  EXPECT_NE(error_of("0F0,0B0\n1F0,,1Q0\n").find("row 2, cell 3: '1Q0' is not an action"), std::string::npos);
  EXPECT_NE(error_of("0F0,(0F1;0B0)\n").find("row 1, cell 2: '(0F1;0B0)' is not an overlapped pair"),
            std::string::npos);
  EXPECT_NE(error_of("(0F1;0F0)OVERLAP_F_B").find("overlaps F with F"), std::string::npos);
  EXPECT_NE(error_of("(0F1;0B0;0F2)OVERLAP_F_B").find("row 1, cell 1: '0B0;0F2' is not an action"),
            std::string::npos);
  EXPECT_NE(error_of(")0F1;0B0(OVERLAP_F_B").find("row 1, cell 1"), std::string::npos);
}

// Files that PyTorch publishes with its tests: what is read and written again is the same, but for idle
// steps.
TEST(Action, ReadsTheFilesOfPyTorch) {
  for (const char* name :
       {"dualpipev_4rank_10mb.csv", "zb1p_2rank_2stagep_compute.csv", "zb1p_2rank_2stagep_comms.csv"}) {
    std::string text = test::golden_text(name);
    const Plan plan = parse_plan(text);
    for (const char* idle : {",,", "\n,"})
      if (const size_t at = text.find(idle); at != std::string::npos) text.erase(at + (idle[0] == '\n'), 1);
    EXPECT_EQ(to_string(plan), text) << name;
  }
}

}  // namespace
}  // namespace trifold
