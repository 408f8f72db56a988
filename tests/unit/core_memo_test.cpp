// Values that threads compute once.
#include "core/memo.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "core/error.h"
#include "core/thread_pool.h"

namespace trifold::test {
namespace {

TEST(Memo, ComputesEachValueOnceForAllThreads) {
  constexpr int kThreads = 4, kKeys = 50;
  Memo<int, std::string> memo;
  std::atomic<int> made{0}, right{0};
  ThreadPool pool(kThreads);
  pool.run([&](int) {
    for (int key = 0; key < kKeys; ++key) {
      const std::string& value = memo.of(key, [&] { return std::to_string((++made, key)); });
      right += value == std::to_string(key) ? 1 : 0;
    }
  });
  EXPECT_EQ(made, kKeys);
  EXPECT_EQ(right, kThreads * kKeys);
}

TEST(Memo, TriesAgainAfterAnError) {
  Memo<int, int> memo;
  EXPECT_THROW(memo.of(1, []() -> int { bad_input("not yet"); }), Error);
  EXPECT_EQ(memo.of(1, [] { return 5; }), 5);
  EXPECT_EQ(&memo.of(1, [] { return 6; }), &memo.of(1, [] { return 7; }));
}

}  // namespace
}  // namespace trifold::test
