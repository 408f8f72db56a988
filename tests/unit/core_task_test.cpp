#include "core/task.h"

#include <gtest/gtest.h>

#include "core/small_list.h"

namespace trifold {
namespace {

TEST(Task, OwnsItsCapturesUntilItIsDone) {
  const auto owned = std::make_shared<int>(0);
  Task task([owned] { ++*owned; });
  EXPECT_EQ(owned.use_count(), 2);
  Task moved = std::move(task);
  EXPECT_EQ(owned.use_count(), 2);
  moved();
  EXPECT_EQ(*owned, 1);
  moved = Task([] {});
  EXPECT_EQ(owned.use_count(), 1);
}

TEST(TaskQueue, KeepsTheOrderAroundItsEndAndWhileItGrows) {
  std::vector<int> seen;
  TaskQueue queue(3);
  int next = 0;
  const auto push = [&] { queue.push(Task([&seen, number = next++] { seen.push_back(number); })); };
  for (int i = 0; i < 2; ++i) push();
  queue.pop()();
  for (int i = 0; i < 10; ++i) push();  // wraps, then grows twice
  while (!queue.empty()) queue.pop()();
  ASSERT_EQ(seen.size(), 12U);
  for (int i = 0; i < 12; ++i) EXPECT_EQ(seen[static_cast<size_t>(i)], i);
}

TEST(SmallList, HoldsFewAndMany) {
  SmallList<std::string, 2> list{"a"};
  for (const char* text : {"b", "c", "d"}) list.push_back(text);
  EXPECT_EQ(std::vector<std::string>(list.begin(), list.end()),
            (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(list.back(), "d");
  list.pop_back();
  list.pop_back();
  EXPECT_EQ(std::vector<std::string>(list.begin(), list.end()), (std::vector<std::string>{"a", "b"}));
  list.push_back("e");
  EXPECT_EQ(list[2], "e");
  const SmallList<std::string, 2> copy = list;
  EXPECT_EQ(copy[2], "e");
}

}  // namespace
}  // namespace trifold
