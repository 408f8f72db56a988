// NcclWorld over a make-believe NCCL, whose functions behave as NCCL's do where its communicators do not
// block: ranks are threads, a kernel is a number in a stream that stays until it is let go or aborted.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <condition_variable>

#include "comm/cuda/nccl_world.cuh"
#include "core/error.h"
#include "support/ranks.h"

using std::chrono::milliseconds;
using namespace std::chrono_literals;

// Where the ranks of one communicator meet at their first collective.
struct Meeting {
  std::mutex mutex;
  std::condition_variable changed;
  int missing = 0;
};

struct CUstream_st {
  std::atomic<int> stuck{0};  // kernels that wait for another rank
};

struct CUevent_st {
  CUstream_st* stream = nullptr;
};

struct ncclComm {
  std::atomic<ncclResult_t> state{ncclSuccess};
  std::atomic<bool> told_to_end{false};
  std::atomic<bool> freed{false};
  bool connected = false;
  Meeting* meeting = nullptr;
  std::atomic<CUstream_st*> stream{nullptr};  // of the kernels that it has enqueued
  std::thread job;

  void join() {
    if (job.joinable()) job.join();
  }
};

namespace trifold::test {
namespace {

// What tests look at, and what never goes away before the end of a test.
struct Believe {
  std::mutex mutex;
  std::vector<std::unique_ptr<ncclComm>> all;
  std::atomic<int> touched_freed{0};  // calls on communicators that are gone
  std::atomic<int> hung{0};           // aborts that waited for another communicator's kernels
  milliseconds split_takes{20};

  ncclComm* add() {
    const std::lock_guard lock(mutex);
    all.push_back(std::make_unique<ncclComm>());
    return all.back().get();
  }
};
std::unique_ptr<Believe> believe;
thread_local std::vector<ncclComm*> group;
thread_local int group_depth = 0;

const char* text(ncclResult_t result) { return result == ncclInvalidArgument ? "invalid argument" : "text"; }
const char* last_error(ncclComm_t) { return "make-believe"; }

ncclResult_t async_error(ncclComm_t comm, ncclResult_t* result) {
  if (comm == nullptr || comm->freed) {
    ++believe->touched_freed;
    return ncclInvalidArgument;
  }
  *result = comm->state;
  return ncclSuccess;
}

// The handle is there at once; the ranks meet in the background.
ncclResult_t init(ncclComm_t* made, int, ncclUniqueId, int, ncclConfig_t*) {
  ncclComm* comm = believe->add();
  comm->state = ncclInProgress;
  *made = comm;
  comm->job = std::thread([comm] {
    std::this_thread::sleep_for(5ms);
    comm->state = ncclSuccess;
  });
  return ncclInProgress;
}

// Success at once, the handle later, the parent in progress until then.
ncclResult_t split(ncclComm_t parent, int, int, ncclComm_t* made, ncclConfig_t*) {
  if (parent->state != ncclSuccess) return ncclInvalidArgument;
  parent->join();
  parent->state = ncclInProgress;
  *made = nullptr;
  parent->job = std::thread([parent, made] {
    const auto until = std::chrono::steady_clock::now() + believe->split_takes;
    while (!parent->told_to_end && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(1ms);
    *made = believe->add();
    parent->state = ncclSuccess;
  });
  return ncclSuccess;
}

// The first one connects: in progress until all ranks have come, or the communicator was aborted.
ncclResult_t all_reduce(const void*, void*, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t comm,
                        cudaStream_t stream) {
  if (comm == nullptr || comm->freed) ++believe->touched_freed;
  if (comm == nullptr || comm->state != ncclSuccess) return ncclInvalidArgument;
  comm->join();
  comm->stream = stream;
  if (comm->connected || comm->meeting == nullptr) return ncclSuccess;
  comm->connected = true;
  comm->state = ncclInProgress;
  comm->job = std::thread([comm] {
    std::unique_lock lock(comm->meeting->mutex);
    --comm->meeting->missing;
    comm->meeting->changed.notify_all();
    while (comm->meeting->missing > 0 && !comm->told_to_end) comm->meeting->changed.wait_for(lock, 1ms);
    comm->state = ncclSuccess;
  });
  return ncclInProgress;
}

ncclResult_t group_start() {
  ++group_depth;
  return ncclSuccess;
}

// Tells the kernels of all of them to end; then frees each, which waits for everything on the device.
void end(const std::vector<ncclComm*>& doomed) {
  for (ncclComm* comm : doomed) {
    comm->told_to_end = true;
    comm->join();
    if (CUstream_st* stream = comm->stream) stream->stuck = 0;
  }
  const auto busy = [] {
    const std::lock_guard lock(believe->mutex);
    return std::any_of(believe->all.begin(), believe->all.end(), [](const auto& comm) {
      const CUstream_st* stream = comm->stream;
      return !comm->freed && stream != nullptr && stream->stuck > 0;
    });
  };
  for (int i = 0; busy(); ++i) {
    if (i == 1000) {
      ++believe->hung;
      break;
    }
    std::this_thread::sleep_for(1ms);
  }
  for (ncclComm* comm : doomed) comm->freed = true;
}

ncclResult_t abort_one(ncclComm_t comm) {
  group.push_back(comm);
  if (group_depth == 0) end(std::exchange(group, {}));
  return ncclSuccess;
}

ncclResult_t group_end() {
  if (--group_depth == 0) end(std::exchange(group, {}));
  return ncclSuccess;
}

class BelieveMarks final : public cuda::StreamMarks {
 public:
  std::string device_name() const override { return "make-believe"; }
  void use() noexcept override {}
  cudaEvent_t make() override { return new CUevent_st; }
  void record(cudaEvent_t mark, cudaStream_t stream) override { mark->stream = stream; }
  bool passed(cudaEvent_t mark) noexcept override { return mark->stream->stuck == 0; }
  void destroy(cudaEvent_t mark) noexcept override { delete mark; }
};

const cuda::Nccl& table() {
  static const cuda::Nccl kTable = [] {
    cuda::Nccl t;
    t.text = text;
    t.last_error = last_error;
    t.async_error = async_error;
    t.init = init;
    t.split = split;
    t.abort = abort_one;
    t.group_start = group_start;
    t.group_end = group_end;
    t.all_reduce = all_reduce;
    return t;
  }();
  return kTable;
}

// One rank's world, its first communicator, and what tests do with them.
struct Rank {
  Rank(Communicator& host, milliseconds timeout)
      : world(host, table(), std::make_unique<BelieveMarks>(), timeout), first(make()) {}

  cuda::SharedHandle make() {
    return world.make("connecting", nullptr,
                      [](ncclComm_t* made) { return table().init(made, 1, {}, 0, nullptr); });
  }
  cuda::SharedHandle split(const cuda::SharedHandle& parent) {
    return world.make("a split", parent.get(),
                      [&](ncclComm_t* made) { return table().split(parent->nccl, 0, 0, made, nullptr); });
  }
  void sum(const cuda::SharedHandle& handle, CUstream_st& stream) {
    world.enqueue(handle, &stream, "a sum", [&](ncclComm_t comm) {
      return table().all_reduce(nullptr, nullptr, 1, ncclFloat32, ncclSum, comm, &stream);
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
  void SetUp() override { believe = std::make_unique<Believe>(); }
  void TearDown() override {
    for (const auto& comm : believe->all) comm->join();
    EXPECT_EQ(believe->touched_freed, 0) << "calls on communicators that were aborted";
    EXPECT_EQ(believe->hung, 0) << "aborts that waited for the kernels of another communicator";
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

// NCCL writes the handle long after the world was aborted by another rank, while the abort waits for it.
TEST_F(NcclWorldTest, SplitThatIsAbortedLeavesNoDanglingAddress) {
  believe->split_takes = 30s;
  run_ranks(2, [](Communicator& host) {
    Rank rank(host, 20s);
    host.barrier();
    if (host.rank() == 1) {
      std::this_thread::sleep_for(50ms);
      rank.world.abort("rank 1 has had enough");
      return;
    }
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

TEST_F(NcclWorldTest, DestructionWaitsForWhatIsEnqueued) {
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
    host.barrier();
    if (host.rank() == 1) {
      std::this_thread::sleep_for(50ms);
      rank.world.abort("rank 1 has had enough");
      return;
    }
    const auto begun = std::chrono::steady_clock::now();
    CUstream_st stream;
    EXPECT_NE(message_of([&] { rank.sum(rank.first, stream); }).find("had enough"), std::string::npos);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, 10s);
  });
}

// A second thread waits its turn on a communicator while that is aborted.
TEST_F(NcclWorldTest, WhoWaitedItsTurnFindsTheWorldAborted) {
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
    EXPECT_NE(trouble.find("another rank did not come"), std::string::npos) << trouble;
    EXPECT_TRUE(comm->freed);  // the job in the background has ended
    EXPECT_EQ(message_of([&] { rank.split(rank.first); }), trouble);
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
    EXPECT_NE(trouble.find("gave up after"), std::string::npos) << trouble;
  });
}

}  // namespace
}  // namespace trifold::test
