#include "core/stream.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include "core/error.h"

namespace trifold {
namespace {

TEST(ThreadPool, CoversEveryIndexOnce) {
  for (int size : {1, 2, 3, 5}) {
    ThreadPool pool(size);
    for (int64_t count : {0, 1, 7, 64, 1000}) {
      std::vector<int> seen(static_cast<size_t>(count), 0);
      pool.parallel_for(count, 4, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
      });
      EXPECT_EQ(std::accumulate(seen.begin(), seen.end(), 0), count);
      for (int times : seen) EXPECT_EQ(times, 1);
    }
  }
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.run([](int worker) {
    if (worker == 2) fail("worker {}", worker);
  }),
               Error);
  std::atomic<int> calls{0};
  pool.run([&](int) { ++calls; });
  EXPECT_EQ(calls, 3);
}

TEST(ThreadPool, AnErrorDoesNotComeBackInTheNextCall) {
  ThreadPool pool(3);
  EXPECT_THROW(pool.run([](int worker) { fail("worker {}", worker); }), Error);
  EXPECT_NO_THROW(pool.run([](int) {}));
}

TEST(ThreadPool, RefusesToRunInsideItself) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.run([&](int) { pool.run([](int) {}); }), Error);
  EXPECT_NO_THROW(pool.run([](int) {}));
  EXPECT_THROW(pool.parallel_for(10, 0, [](int64_t, int64_t) {}), Error);
}

// More workers than cores, asleep before each call: most are late, and the caller does their parts. On a busy machine it
// may be the caller that is late, so calls are repeated until it was not.
TEST(ThreadPool, WaitsForNoWorkerThatHasNotBegun) {
  constexpr int kSize = 64, kMostCalls = 2000;
  ThreadPool pool(kSize);
  const std::thread::id caller = std::this_thread::get_id();
  std::array<std::atomic<int>, kSize> times{};
  std::atomic<int> by_caller{0};
  int calls = 0;
  while (calls < 20 || (by_caller <= 2 * calls && calls < kMostCalls)) {
    ++calls;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pool.run([&](int worker) {
      ++times[static_cast<size_t>(worker)];
      if (std::this_thread::get_id() == caller) ++by_caller;
    });
  }
  for (const std::atomic<int>& count : times) EXPECT_EQ(count, calls);
  EXPECT_GT(by_caller, 2 * calls);
}

TEST(Stream, WorkerKeepsOrderAndEventsOrderStreams) {
  ThreadPool pool(1);
  ThreadPool other_pool(1);
  Stream compute(Stream::Mode::Inline, pool);
  Stream comm(Stream::Mode::Worker, other_pool);
  std::vector<int> order;
  int value = 0;
  for (int i = 0; i < 100; ++i) comm.run([&order, i] { order.push_back(i); });
  comm.run([&value] { value = 42; });
  compute.wait(comm.record());
  EXPECT_EQ(value, 42);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(Stream, WorkerWaitsForAnotherWorker) {
  ThreadPool a_pool(1);
  ThreadPool b_pool(1);
  Stream a(Stream::Mode::Worker, a_pool);
  Stream b(Stream::Mode::Worker, b_pool);
  int value = 0;
  a.run([&value] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    value = 1;
  });
  b.wait(a.record());
  int seen = -1;
  b.run([&] { seen = value; });
  b.synchronize();
  EXPECT_EQ(seen, 1);
}

TEST(Stream, ErrorReachesWaitersAndDropsLaterWork) {
  ThreadPool pool(1);
  ThreadPool other_pool(1);
  Stream compute(Stream::Mode::Inline, pool);
  Stream comm(Stream::Mode::Worker, other_pool);
  comm.run([] { fail("the cable is cut"); });
  bool ran = false;
  comm.run([&ran] { ran = true; });
  EXPECT_THROW(compute.wait(comm.record()), Error);
  EXPECT_THROW(comm.synchronize(), Error);
  EXPECT_FALSE(ran);
}

TEST(Stream, EveryWaiterHasAnErrorOfItsOwn) {
  ThreadPool pool(1);
  Stream comm(Stream::Mode::Worker, pool);
  comm.run([] { fail("the cable is cut"); });
  for (int i = 0; i < 2; ++i) {
    try {
      comm.synchronize();
      FAIL() << "the error was lost";
    } catch (Error& error) {
      error.add_context("step 1");
      EXPECT_STREQ(error.what(), "step 1: the cable is cut");
    }
  }
}

TEST(Stream, DestructorsOfOwnedValuesMayUseTheStream) {
  ThreadPool pool(1);
  Stream comm(Stream::Mode::Worker, pool);
  bool destroyed = false;
  auto owned = std::shared_ptr<Stream>(&comm, [&destroyed](Stream* stream) {
    stream->record();
    destroyed = true;
  });
  comm.run([kept = std::move(owned)] {});
  comm.synchronize();
  EXPECT_TRUE(destroyed);
}

TEST(Stream, WorkCannotWaitForItself) {
  ThreadPool pool(1);
  Stream comm(Stream::Mode::Worker, pool);
  comm.run([&comm] { comm.synchronize(); });
  EXPECT_THROW(comm.synchronize(), Error);
}

TEST(Stream, DryDropsWork) {
  ThreadPool pool(1);
  Stream dry(Stream::Mode::Dry, pool);
  dry.run([] { FAIL() << "a dry stream ran its work"; });
  dry.synchronize();
}

}  // namespace
}  // namespace trifold
