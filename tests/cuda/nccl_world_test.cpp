// NcclWorld over a fake NCCL (fake_nccl.h).
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <functional>

#include "comm/cuda/nccl_world.cuh"
#include "comm/rank_report.h"
#include "core/error.h"
#include "cuda/fake_nccl.h"
#include "support/ranks.h"

using std::chrono::milliseconds;
using namespace std::chrono_literals;

namespace trifold::test {
namespace {

// One rank's world, its first communicator, and what tests do with them.
struct Rank {
  Rank(Communicator& host, milliseconds timeout)
      : world(host, fake_nccl_table(), std::make_unique<FakeMarks>(), timeout), first(make()) {}

  cuda::SharedHandle make() {
    return world.make("connecting", "the group of world ranks 2 and 3", nullptr,
                      [](ncclComm_t* made) { return fake_nccl_table().init(made, 1, {}, 0, nullptr); });
  }
  cuda::SharedHandle split(const cuda::SharedHandle& parent) {
    return world.make("a split", "the group of world ranks 2 and 3", parent.get(), [&](ncclComm_t* made) {
      return fake_nccl_table().split(parent->nccl, 0, 0, made, nullptr);
    });
  }
  void sum(const cuda::SharedHandle& handle, CUstream_st& stream) {
    world.enqueue(handle, &stream, "a sum", [&](ncclComm_t comm) {
      return fake_nccl_table().all_reduce(nullptr, nullptr, 1, ncclFloat32, ncclSum, comm, &stream);
    });
  }
  // Enqueues a kernel that another rank never joins.
  void get_stuck(const cuda::SharedHandle& handle, CUstream_st& stream) {
    stream.stuck = 1;
    sum(handle, stream);
  }

  cuda::NcclWorld world;
  cuda::SharedHandle first;
};

class NcclWorldTest : public testing::Test {
 protected:
  void SetUp() override { fake_nccl = std::make_unique<FakeNccl>(); }
  void TearDown() override {
    for (const auto& comm : fake_nccl->all) comm->join();
    EXPECT_EQ(fake_nccl->touched_freed, 0) << "calls on communicators that were aborted";
    EXPECT_EQ(fake_nccl->hung, 0) << "aborts that waited for the kernels of another communicator";
  }
};

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// All ranks come; rank 1 aborts the world while the others are at what they do next.
bool aborts_later(Communicator& host, Rank& rank) {
  host.barrier();
  if (host.rank() != 1) return false;
  std::this_thread::sleep_for(50ms);
  rank.world.abort("rank 1 has had enough");
  return true;
}

TEST_F(NcclWorldTest, SplitWaitsForItsHandle) {
  run_ranks(1, [](Communicator& host) {
    Rank rank(host, 20s);
    CUstream_st stream;
    const cuda::SharedHandle child = rank.split(rank.first);
    ASSERT_NE(child->nccl, nullptr);
    rank.sum(rank.first, stream);  // the parent is not in progress any more
    rank.sum(child, stream);
    rank.world.forget(rank.split(child));
    rank.world.forget(child);
  });
}

// How often the calling thread has slept; giving way to other threads does not count.
long count_sleeps() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nvcsw;
}

// A thread that slept after each of the questions would sleep 50 times.
TEST_F(NcclWorldTest, ACallThatIsNearlyMadeIsNotSleptFor) {
  fake_nccl->sum_takes_asks = 51;
  run_ranks(1, [](Communicator& host) {
    Rank rank(host, 20s);
    CUstream_st stream;
    const long before = count_sleeps();
    rank.sum(rank.first, stream);
    EXPECT_LT(count_sleeps() - before, 25);
  });
}

// NCCL writes the handle long after the world was aborted by another rank, while the abort waits for it.
TEST_F(NcclWorldTest, SplitThatIsAbortedLeavesNoDanglingAddress) {
  fake_nccl->split_takes = 30s;
  run_ranks(2, [](Communicator& host) {
    Rank rank(host, 20s);
    if (aborts_later(host, rank)) return;
    EXPECT_NE(message_of([&] { rank.split(rank.first); }).find("had enough"), std::string::npos);
  });
}

// Two communicators wait for a rank that died: NCCL frees either only when the kernels of both have ended.
TEST_F(NcclWorldTest, AbortEndsAllCommunicatorsTogether) {
  run_ranks(1, [](Communicator& host) {
    Rank rank(host, 20s);
    const cuda::SharedHandle other = rank.make();
    CUstream_st one, two;
    rank.get_stuck(rank.first, one);
    rank.get_stuck(other, two);
    rank.world.abort("a rank died");
    EXPECT_EQ(one.stuck + two.stuck, 0);
    EXPECT_EQ(message_of([&] { rank.sum(other, two); }), "a rank died");
    one.stuck = 1;  // CUDA may say only later that the kernel has ended: the watch asks NCCL no more
    std::this_thread::sleep_for(50ms);
  });
}

TEST_F(NcclWorldTest, DestructionWaitsForEnqueuedWork) {
  run_ranks(1, [](Communicator& host) {
    Rank rank(host, 20s);
    const cuda::SharedHandle other = rank.make();
    CUstream_st stream;
    rank.get_stuck(other, stream);
    std::thread peer([&] {
      std::this_thread::sleep_for(50ms);
      stream.stuck = 0;
    });
    rank.world.forget(rank.first);
    EXPECT_EQ(stream.stuck, 0);
    peer.join();
    rank.sum(other, stream);  // nothing was aborted
  });
}

// A rank that fails destroys its communicators one by one, while other ranks no longer come.
TEST_F(NcclWorldTest, UnwindingAbortsTheWorldRatherThanWait) {
  run_ranks(1, [](Communicator& host) {
    Rank rank(host, 20s);
    const cuda::SharedHandle other = rank.make();
    CUstream_st stream;
    rank.get_stuck(other, stream);
    struct Owner {
      Rank& rank;
      ~Owner() { rank.world.forget(rank.first); }
    };
    EXPECT_EQ(message_of([&] {
                const Owner owner{rank};
                fail("something else");
              }),
              "something else");
    EXPECT_EQ(stream.stuck, 0);
    EXPECT_TRUE(rank.first->nccl == nullptr && other->nccl == nullptr);
  });
}

// Rank 0 comes to one communicator first and rank 1 to the other, both for the first time.
TEST_F(NcclWorldTest, FirstCallsInDifferentOrders) {
  std::array<Meeting, 2> meetings;
  for (Meeting& meeting : meetings) meeting.missing = 2;
  run_ranks(2, [&](Communicator& host) {
    Rank rank(host, 2s);
    const cuda::SharedHandle second = rank.make();
    const std::array handles{rank.first, second};
    for (size_t i = 0; i < 2; ++i) handles[i]->nccl->meeting = &meetings[i];
    host.barrier();
    CUstream_st streams[2];
    const auto early = static_cast<size_t>(host.rank());
    std::string trouble;
    std::thread worker([&] { trouble = message_of([&] { rank.sum(handles[early], streams[early]); }); });
    std::this_thread::sleep_for(50ms);
    EXPECT_EQ(message_of([&] { rank.sum(handles[1 - early], streams[1 - early]); }), "");
    worker.join();
    EXPECT_EQ(trouble, "");
    host.barrier();
  });
}

TEST_F(NcclWorldTest, FirstCallHearsOfAnAbortElsewhere) {
  Meeting meeting;
  meeting.missing = 2;
  run_ranks(2, [&](Communicator& host) {
    Rank rank(host, 20s);
    rank.first->nccl->meeting = &meeting;
    if (aborts_later(host, rank)) return;
    const auto begun = std::chrono::steady_clock::now();
    CUstream_st stream;
    EXPECT_NE(message_of([&] { rank.sum(rank.first, stream); }).find("had enough"), std::string::npos);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 10s);
  });
}

// A second thread waits its turn on a communicator while that is aborted.
TEST_F(NcclWorldTest, AWaitingRankFindsTheWorldAborted) {
  Meeting meeting;
  meeting.missing = 2;
  run_ranks(1, [&](Communicator& host) {
    Rank rank(host, 20s);
    rank.first->nccl->meeting = &meeting;
    CUstream_st stream;
    std::array<std::string, 2> troubles;
    std::array<std::thread, 2> threads;
    for (size_t i = 0; i < 2; ++i)
      threads[i] = std::thread([&, i] { troubles[i] = message_of([&] { rank.sum(rank.first, stream); }); });
    std::this_thread::sleep_for(50ms);
    rank.world.abort("enough");
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(troubles[0], "enough");
    EXPECT_EQ(troubles[1], "enough");
  });
}

TEST_F(NcclWorldTest, DeadlineOfAFirstCallAbortsTheWorld) {
  Meeting meeting;
  meeting.missing = 2;
  run_ranks(1, [&](Communicator& host) {
    Rank rank(host, 100ms);
    rank.first->nccl->meeting = &meeting;
    ncclComm* const comm = rank.first->nccl;
    CUstream_st stream;
    const std::string trouble = message_of([&] { rank.sum(rank.first, stream); });
    EXPECT_NE(trouble.find("a sum in the group of world ranks 2 and 3: another rank has not joined it"),
              std::string::npos)
        << trouble;
    EXPECT_TRUE(comm->freed);  // the job in the background has ended
    // Other ranks learn which rank it was.
    EXPECT_EQ(message_of([&] { rank.split(rank.first); }), "rank 0 (" + this_process() + "): " + trouble);
  });
}

TEST_F(NcclWorldTest, DeadlineOfAKernelAbortsTheWorld) {
  run_ranks(1, [&](Communicator& host) {
    Rank rank(host, 100ms);
    CUstream_st stream;
    rank.get_stuck(rank.first, stream);
    for (int i = 0; i < 10'000 && stream.stuck > 0; ++i) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(stream.stuck, 0);
    const std::string trouble = message_of([&] { rank.sum(rank.first, stream); });
    EXPECT_NE(trouble.find("rank 0 (" + this_process() +
                           ") gave up after 100 ms in a sum in the group of world ranks 2 and 3: "),
              std::string::npos)
        << trouble;
  });
}

}  // namespace
}  // namespace trifold::test
