#include <gtest/gtest.h>

#include "config/fields/schedule.h"

namespace trifold {
namespace {

TEST(Schedule, NamesReadBack) {
  int count = 0;
  for (std::string_view name : schedule_names()) {
    const auto schedule = find_schedule(name);
    ASSERT_TRUE(schedule) << name;
    EXPECT_EQ(schedule_name(*schedule), name);
    EXPECT_EQ(static_cast<int>(*schedule), count++);
  }
  EXPECT_EQ(schedule_name(Schedule::Auto), "auto");
  EXPECT_FALSE(find_schedule("1F1B"));
  EXPECT_FALSE(find_schedule(""));
}

TEST(Schedule, ProblemsComeWithARemedy) {
  EXPECT_EQ(
      schedule_problem(Schedule::DualPipeV, 4, 2, 7),
      "dualpipe-v on 4 pipeline ranks needs at least 8 micro-batches in a global batch, there are 7; 1f1b "
      "runs with any number");
  EXPECT_EQ(
      schedule_problem(Schedule::PipeDream2BW, 4, 1, 1),
      "pipedream-2bw on 4 pipeline ranks needs at least 4 micro-batches in a global batch, there is 1; 1f1b "
      "runs with any number");
  EXPECT_EQ(schedule_problem(Schedule::ZbV, 4, 1, 8), "zb-v places exactly 2 chunks on each rank, not 1");
  EXPECT_EQ(
      schedule_problem(Schedule::OneFOneB, 4, 2, 8),
      "1f1b has one chunk per rank, not 2; interleaved and auto take any number, zb-v and dualpipe-v take 2");
  EXPECT_NE(schedule_problem(Schedule::Gpipe, 4, 1, 0), "");
  EXPECT_NE(schedule_problem(Schedule::Gpipe, 0, 1, 1), "");
}

TEST(Schedule, RunnableSchedulesHaveNoProblem) {
  for (std::string_view name : schedule_names()) {
    const Schedule schedule = *find_schedule(name);
    const int chunks = needs_two_chunks(schedule) ? 2 : 1;
    for (int ranks : {1, 2, 4, 16}) {
      const int least = min_micros(schedule, ranks, chunks);
      EXPECT_EQ(schedule_problem(schedule, ranks, chunks, least), "") << name << " on " << ranks;
      EXPECT_NE(schedule_problem(schedule, ranks, chunks, least - 1), "") << name << " on " << ranks;
    }
  }
  EXPECT_EQ(schedule_problem(Schedule::Interleaved, 4, 5, 3), "");
  EXPECT_EQ(schedule_problem(Schedule::Auto, 4, 5, 3), "");
}

}  // namespace
}  // namespace trifold
