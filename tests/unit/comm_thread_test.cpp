#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <thread>
#include <vector>

#include "comm/call.h"
#include "comm/rank_report.h"
#include "comm/thread_comm.h"
#include "core/wait_clock.h"
#include "support/ranks.h"

namespace trifold::test {
namespace {

using std::chrono::milliseconds;

TEST(Call, PartsCoverEverythingOnce) {
  for (int size : {1, 2, 3, 7})
    for (int64_t count : {0, 1, 63, 64, 65, 1000, 100'003}) {
      int64_t next = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Part part = part_of(count, rank, size);
        EXPECT_EQ(part.begin, next);
        EXPECT_LE(part.begin, part.end);
        next = part.end;
      }
      EXPECT_EQ(next, count);
    }
}

TEST(Call, NamesRanksAndGroups) {
  EXPECT_EQ(name_ranks(std::vector{2}), "rank 2");
  EXPECT_EQ(name_ranks(std::vector{0, 3, 4}), "ranks 0, 3 and 4");
  EXPECT_EQ(name_group(std::vector{0, 1}, 2), "the world of 2 ranks");
  EXPECT_EQ(name_group(std::vector{1, 3}, 4), "the group of world ranks 1 and 3");
}

TEST(Call, DisagreementNamesEveryCallOnce) {
  float numbers[8] = {};
  const Tensor four{numbers, DType::F32, {4}};
  const Tensor eight{numbers, DType::F32, {8}};
  const std::vector<Call> calls{all_reduce_call(four, Reduce::Sum), all_reduce_call(eight, Reduce::Sum),
                                all_reduce_call(four, Reduce::Sum)};
  EXPECT_EQ(disagreement(calls, "the world of 3 ranks", std::vector{0, 1, 2}).value(),
            "the ranks of the world of 3 ranks do not make the same call: ranks 0 and 2 call all_reduce(sum) "
            "of 4 f32, call 0; rank 1 calls all_reduce(sum) of 8 f32, call 0; all must make the same calls "
            "in the same order, with equal counts and types");
  EXPECT_FALSE(disagreement(std::vector{calls[0], calls[2]}, "", std::vector{0, 1}).has_value());
}

TEST(Call, DisagreementInAGroupNamesRanksOfTheWorld) {
  float numbers[8] = {};
  const std::vector<Call> calls{all_reduce_call({numbers, DType::F32, {4}}, Reduce::Sum),
                                all_reduce_call({numbers, DType::F32, {8}}, Reduce::Sum)};
  const std::string text = disagreement(calls, "the group of world ranks 2 and 5", std::vector{2, 5}).value();
  EXPECT_NE(text.find("rank 2 calls all_reduce(sum) of 4 f32"), std::string::npos) << text;
  EXPECT_NE(text.find("rank 5 calls all_reduce(sum) of 8 f32"), std::string::npos) << text;
}

// A rank that no longer comes is named first, and others only for what they wait for.
TEST(RankReport, SilentRanksAreReportedFirst) {
  const auto wait = [](int rank) {
    return RankReport{rank, "host a", true, true, waiting_text("barrier", 2)};
  };
  const RankReport idle{2, "host b", true, false, idle_text("split, call 0", 3)};
  const RankReport gone{1, "host c", false, false, ""};
  const auto message = [](const std::vector<RankReport>& reports) {
    return time_out_text(reports, 0, milliseconds(2000), "barrier");
  };
  EXPECT_EQ(
      message({wait(0), wait(1), idle}),
      "rank 2 (host b) waits for no other rank; its last call was 3.0 s ago: split, call 0. Rank 0 gave "
      "up after 2 s in barrier. What each rank does:\n"
      "  rank 2 (host b) waits for no other rank; its last call was 3.0 s ago: split, call 0\n"
      "  rank 0 (host a) waits 2.0 s in barrier\n"
      "  rank 1 (host a) waits 2.0 s in barrier");
  EXPECT_EQ(message({wait(0), gone, idle}).find("rank 1 (host c) does not answer: it is stopped"), 0U);
  EXPECT_EQ(message({wait(0), {1, "", true, false, ""}, idle}).find("ranks 1 and 2 are missing"), 0U);
  EXPECT_EQ(message({wait(0), wait(1)}).find("every rank waits for another"), 0U);
}

TEST(RankReport, RanksThatWaitForTheDiskAreWaitedFor) {
  const RankReport waits{0, "host a", true, true, waiting_text("barrier", 2)};
  const RankReport idle{1, "host a", true, false, idle_text("", 0)};
  const RankReport gone{2, "host b", false, false, ""};
  HostThread thread;
  RankReport writes = idle;
  add_outside(writes, thread);
  EXPECT_FALSE(writes.outside);
  writes.outside = true;
  writes.doing = "has waited 12.0 s for the disk to write d/shard";
  RankReport saves = idle;
  saves.saver_outside = true;
  for (const bool of_saver : {false, true}) {
    EXPECT_EQ(waits_outside({waits, writes}, of_saver), !of_saver);
    EXPECT_FALSE(waits_outside({waits, writes, idle}, of_saver));
    EXPECT_FALSE(waits_outside({waits, writes, saves, gone}, of_saver));
    EXPECT_FALSE(waits_outside({waits, waits}, of_saver));
    EXPECT_EQ(waits_outside({waits, idle, saves}, of_saver), of_saver);
  }
  EXPECT_EQ(
      time_out_text({waits, writes}, 0, milliseconds(2000), "barrier", true),
      "rank 1 (host a) has waited 12.0 s for the disk to write d/shard. Rank 0 gave up after 12 s (6 "
      "times the time-out of 2 s, the limit while ranks wait for the disk or for data) in barrier. What each rank "
      "does:\n"
      "  rank 1 (host a) has waited 12.0 s for the disk to write d/shard\n"
      "  rank 0 (host a) waits 2.0 s in barrier");
  // One that hangs is to blame, not one that writes.
  EXPECT_EQ(time_out_text({waits, writes, {5, "host c", true, false, "hangs"}}, 0, milliseconds(2000), "x")
                .find("rank 5 (host c) hangs. Rank 0 gave up after 2 s in x."),
            0U);
}

// Ranks meet in a barrier, to which rank 1 comes late because the disk writes for it for as long as `slow`
// says, and rank 2 because it does something else for as long as `hang` says. What the first error says; ""
// without one.
std::string meet_beside_a_slow_disk(milliseconds timeout, milliseconds slow, milliseconds hang) {
  try {
    run_ranks(3,
              [&](Communicator& comm) {
                if (comm.rank() == 1) {
                  const DiskWait waits("d/shard");
                  std::this_thread::sleep_for(slow);
                }
                if (comm.rank() == 2) std::this_thread::sleep_for(hang);
                comm.barrier();
              },
              {.timeout = timeout});
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ThreadWorld, ASlowDiskIsWaitedForUpToALimit) {
  EXPECT_EQ(meet_beside_a_slow_disk(milliseconds(400), milliseconds(1000), milliseconds(0)), "");
  const std::string text = meet_beside_a_slow_disk(milliseconds(200), milliseconds(2000), milliseconds(0));
  EXPECT_EQ(text.find("rank 1 (host "), 0U) << text;
  for (const char* part : {" s for the disk to write d/shard. Rank ",
                           " gave up after 1200 ms (6 times the time-out of 200 ms, the limit while ranks "
                           "wait for the disk or for data) in barrier"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(ThreadWorld, ARankThatHangsBesideASlowDiskIsFound) {
  const auto start = Clock::now();
  const std::string text = meet_beside_a_slow_disk(milliseconds(400), milliseconds(1200), milliseconds(1200));
  EXPECT_EQ(text.find("rank 2 (host "), 0U) << text;
  EXPECT_NE(text.find(" gave up after 400 ms in barrier"), std::string::npos) << text;
  EXPECT_LT(seconds_since(start), 20);
}

// While a thread of their own saves, ranks compute; that says nothing of the save.
TEST(ThreadWorld, ASaveInTheBackgroundMayWaitForTheDisk) {
  run_ranks(2,
            [](Communicator& comm) {
              const auto twin = comm.split(0, comm.rank());
              std::exception_ptr error;
              std::thread saver([&, rank = HostThread::here()] {
                const SavesFor saves(rank);
                try {
                  if (comm.rank() == 1) {
                    const DiskWait waits("d/shard");
                    std::this_thread::sleep_for(milliseconds(1000));
                  }
                  twin->barrier();
                } catch (...) {
                  error = std::current_exception();
                }
              });
              saver.join();
              if (error) std::rethrow_exception(error);
            },
            {.timeout = milliseconds(400)});
}

// The Error of a time-out says what every rank of the world does, also in other groups.
TEST(ThreadWorld, ATimeOutReportsTheCallOfEveryRank) {
  std::string text;
  try {
    run_ranks(4,
              [](Communicator& comm) {
                const auto pair = comm.split(comm.rank() / 2, 0);
                OwnStream stream;
                float number = 0;
                if (comm.rank() == 3) {
                  std::this_thread::sleep_for(milliseconds(900));
                } else if (comm.rank() == 2) {
                  std::this_thread::sleep_for(milliseconds(50));
                  pair->barrier();
                } else {
                  comm.all_reduce({&number, DType::F32, {1}}, Reduce::Max, stream);
                }
              },
              {.timeout = milliseconds(400)});
  } catch (const Error& error) {
    text = error.what();
  }
  for (const char* part : {"gave up after 400 ms in all_reduce(max) of 1 f32, "
                           "call 1 in the world of 4 ranks, for ranks 2 and 3 to come",
                           " s in barrier, call 0 in the group of world ranks 2 and 3, for rank 3 to come"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
  EXPECT_EQ(text.find("rank 3 (host "), 0U) << text;
  EXPECT_NE(text.find(") waits for no other rank; its last call was "), std::string::npos) << text;
}

// Messages may be under way on a stream while the rank itself hangs: it is still the one that others wait
// for.
TEST(ThreadWorld, AHangingRankIsReportedFirstEvenIfItsStreamsWait) {
  std::string text;
  try {
    run_ranks(3,
              [](Communicator& comm) {
                OwnStream stream;
                OwnStream worker(Stream::Mode::Worker);
                float number = 0;
                const auto twin = comm.split(0, 0);
                const Tensor tensor{&number, DType::F32, {1}};
                if (comm.rank() == 1) {
                  twin->exchange(std::vector<Transfer>{{Transfer::Direction::Receive, 2, tensor}}, worker);
                  std::this_thread::sleep_for(milliseconds(1200));
                  worker.get().synchronize();
                } else {
                  comm.all_reduce(tensor, Reduce::Max, stream);
                }
              },
              {.timeout = milliseconds(500)});
  } catch (const Error& error) {
    text = error.what();
  }
  EXPECT_EQ(text.find("rank 1 (host "), 0U) << text;
}

TEST(WaitClock, KnowsWhenItsThreadDoesNotRun) {
  WaitClock clock(milliseconds(200));  // polls every 10 ms
  EXPECT_EQ(clock.stopped(), 0);
  std::this_thread::sleep_for(milliseconds(150));
  EXPECT_GE(clock.stopped(), 0.15);
  clock.expired();
  EXPECT_EQ(clock.stopped(), 0);
}

TEST(WaitClock, CountsOnlyTheTimeThatTheProcessRan) {
  WaitClock clock(milliseconds(6000));
  const auto poll = clock.poll();
  EXPECT_LE(poll, milliseconds(100));
  auto now = Clock::now();
  EXPECT_FALSE(clock.expired(now += std::chrono::hours(1)));  // a stopped process
  EXPECT_LE(clock.waited(), 1.01);
  int looks = 0;
  while (!clock.expired(now += poll)) ++looks;
  EXPECT_GE(looks, 45);
  EXPECT_LE(looks, 60);
  EXPECT_TRUE(clock.extend(milliseconds(15'000)));
  EXPECT_FALSE(clock.expired(now += poll));
  while (!clock.expired(now += poll)) {
  }
  EXPECT_NEAR(clock.waited(), 12, 0.3);
  EXPECT_TRUE(clock.extend(milliseconds(15'000)));
  while (!clock.expired(now += poll)) {
  }
  EXPECT_NEAR(clock.waited(), 15, 0.2);
  EXPECT_FALSE(clock.extend(milliseconds(15'000)));
}

// Switches of this process's threads so far: the kernel counts a thread that yields as preempted.
struct Switches {
  int64_t slept = 0;
  int64_t preempted = 0;
};

Switches switches() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return {usage.ru_nvcsw, usage.ru_nivcsw};
}

TEST(ThreadWorld, RanksThatShareCoresSleepWhileTheyWait) {
  const Switches before = switches();
  run_ranks(2 * available_cores() + 2, [](Communicator& comm) {
    for (int round = 0; round < 200; ++round) comm.barrier();
  });
  const Switches after = switches();
  EXPECT_GT(after.slept - before.slept, 2 * (after.preempted - before.preempted));
}

TEST(ThreadWorld, FirstErrorWinsAndTheOthersAreWoken) {
  std::atomic<int> woken{0};
  try {
    run_ranks(3, [&](Communicator& comm) {
      if (comm.rank() == 1) fail("rank 1 lost its token file");
      try {
        comm.barrier();
      } catch (const Error&) {
        ++woken;
        throw;
      }
    });
    FAIL() << "no Error arrived";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "rank 1 lost its token file");
  }
  EXPECT_EQ(woken, 2);
}

// A rank that is woken while the others read its memory frees it at once: sanitizers see any late reader.
TEST(ThreadWorld, AbortLeavesNoReaderBehind) {
  for (int round = 0; round < 30; ++round) {
    ThreadWorld world(3, milliseconds(20'000));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < 3; ++rank)
      threads.emplace_back([&, rank] {
        const auto comm = world.join(rank);
        OwnStream stream;
        try {
          for (int i = 0; i < 1000; ++i) {
            std::vector<float> numbers(20'000, 1), received(20'000);
            const auto count = static_cast<int64_t>(numbers.size());
            comm->all_reduce({numbers.data(), DType::F32, {count}}, Reduce::Sum, stream);
            const std::vector<Transfer> ring{
                {Transfer::Direction::Send, (rank + 1) % 3, {numbers.data(), DType::F32, {count}}},
                {Transfer::Direction::Receive, (rank + 2) % 3, {received.data(), DType::F32, {count}}}};
            comm->exchange(ring, stream);
          }
        } catch (const Error&) {
        }
      });
    std::this_thread::sleep_for(std::chrono::microseconds(200 + 150 * round));
    world.abort("enough");
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(ThreadWorld, RefusesRanksItDoesNotHave) {
  EXPECT_THROW(ThreadWorld(0), Error);
  ThreadWorld world(2);
  EXPECT_THROW(world.join(2), Error);
  EXPECT_THROW(world.join(-1), Error);
}

}  // namespace
}  // namespace trifold::test
