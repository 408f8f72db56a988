// order_problems, on records made by hand.
#include "nccl_order/check.h"

#include <gtest/gtest.h>

namespace trifold::test {
namespace {

OrderEntry sum(int comm, int stream, int64_t count = 4) {
  OrderEntry entry;
  entry.comm = comm;
  entry.operation = "all_reduce(sum)";
  entry.count = count;
  entry.type = "f32";
  entry.stream = stream;
  return entry;
}

OrderEntry gather(int comm, int stream) {
  OrderEntry entry = sum(comm, stream);
  entry.operation = "all_gather";
  return entry;
}

OrderEntry messages(int comm, int stream, std::vector<OrderMessage> list) {
  OrderEntry entry;
  entry.kind = OrderEntry::Kind::Messages;
  entry.comm = comm;
  entry.stream = stream;
  entry.messages = std::move(list);
  return entry;
}
OrderEntry send(int comm, int stream, int peer, int64_t count = 4) {
  return messages(comm, stream, {{true, peer, count, "f32"}});
}
OrderEntry receive(int comm, int stream, int peer, int64_t count = 4) {
  return messages(comm, stream, {{false, peer, count, "f32"}});
}

OrderEntry wait_for(int other, int64_t until, int stream = -1) {
  OrderEntry entry;
  entry.kind = stream < 0 ? OrderEntry::Kind::HostWait : OrderEntry::Kind::StreamWait;
  entry.stream = stream;
  entry.other = other;
  entry.until = until;
  return entry;
}

OrderEntry host_call(int comm, const char* operation) {
  OrderEntry entry;
  entry.kind = OrderEntry::Kind::HostCall;
  entry.comm = comm;
  entry.operation = operation;
  return entry;
}

// Two ranks with two communicators.
OrderRecord two_ranks(std::vector<OrderEntry> first, std::vector<OrderEntry> second) {
  OrderRecord record;
  record.ranks = {std::move(first), std::move(second)};
  record.comms = {{"nccl 0", {0, 1}}, {"nccl 1", {0, 1}}};
  return record;
}

// The same, with both communicators connected for collectives and messages, on streams 0 and 1.
OrderRecord two_connected(std::vector<OrderEntry> first, std::vector<OrderEntry> second) {
  OrderRecord record = two_ranks({}, {});
  for (int rank : {0, 1}) {
    auto& entries = record.ranks[static_cast<size_t>(rank)];
    for (int comm : {0, 1}) {
      entries.push_back(sum(comm, comm));
      entries.push_back(messages(comm, comm, {{true, 1 - rank, 0, "u8"}, {false, 1 - rank, 0, "u8"}}));
    }
    auto& more = rank == 0 ? first : second;
    entries.insert(entries.end(), more.begin(), more.end());
  }
  return record;
}
constexpr int64_t kConnecting = 4;  // entries of two_connected

void expect_none(const OrderRecord& record, Blocking blocking = Blocking::FirstCall) {
  const auto problems = order_problems(record, blocking);
  EXPECT_TRUE(problems.empty()) << problems.front();
}
void expect_one(const OrderRecord& record, const std::string& part, Blocking blocking = Blocking::FirstCall) {
  const auto problems = order_problems(record, blocking);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems.front().find(part), std::string::npos) << problems.front();
}
constexpr const char* kCycle = "these wait for each other";

TEST(NcclOrder, EqualCallsHaveNoProblem) {
  expect_none(two_ranks({sum(0, 0), gather(1, 0)}, {sum(0, 3), gather(1, 3)}));
  expect_none(two_ranks({}, {}));
}

TEST(NcclOrder, CallsThatDifferAreNamed) {
  expect_one(two_ranks({sum(0, 0), gather(0, 0)}, {gather(0, 0), sum(0, 0)}),
             "nccl 0: call 0 is all_reduce(sum) of 4 f32 on rank 0 and all_gather of 4 f32 on rank 1");
  expect_one(two_ranks({sum(0, 0)}, {sum(0, 0, 5)}), "all_reduce(sum) of 5 f32 on rank 1");
  expect_one(two_ranks({sum(0, 0), sum(0, 0)}, {sum(0, 0)}),
             "call 1 is all_reduce(sum) of 4 f32 on rank 0 and no call");
  OrderEntry first = sum(0, 0), second = sum(0, 0);
  first.operation = second.operation = "broadcast";
  first.root = 0;
  second.root = 1;
  expect_one(two_ranks({first}, {second}), "from 1 on rank 1");
}

TEST(NcclOrder, MessagesThatDoNotMatchAreNamed) {
  expect_one(two_ranks({send(0, 0, 1), send(0, 0, 1)}, {receive(0, 0, 0)}),
             "nccl 0: from rank 0 to rank 1, 2 sends but 1 receives");
  expect_one(two_ranks({send(0, 0, 1, 4)}, {receive(0, 0, 0, 5)}), "is sent as 4 f32 and received as 5 f32");
}

// Kernels of one stream run one after another; those of two do not wait for each other.
TEST(NcclOrder, TwoCommunicatorsInOppositeOrders) {
  const auto crossed = [](int second_stream) {
    return two_connected({sum(0, 0), sum(1, second_stream)}, {sum(1, second_stream), sum(0, 0)});
  };
  expect_one(crossed(0), kCycle);
  expect_none(crossed(1));
  // If every collective may block the host, they wait for each other on the host.
  expect_one(crossed(1), kCycle, Blocking::EveryCollective);
}

// Whatever the streams, the first call waits on the host.
TEST(NcclOrder, FirstCallsBlockTheHost) {
  expect_one(two_ranks({sum(0, 0), sum(1, 1)}, {sum(1, 1), sum(0, 0)}), kCycle);
  expect_one(two_ranks({send(0, 0, 1), receive(1, 1, 1)}, {send(1, 1, 0), receive(0, 0, 0)}), kCycle);
  expect_none(two_connected({send(0, 0, 1), receive(1, 1, 1)}, {send(1, 1, 0), receive(0, 0, 0)}));
}

// Calls of other threads come when they come.
TEST(NcclOrder, AnotherThreadIsNotBlocked) {
  OrderEntry first = sum(0, 0), second = sum(1, 1);
  second.thread = 1;
  expect_none(two_ranks({first, second}, {second, first}));
}

// The second stage sends a gradient back before it takes the next activations.
TEST(NcclOrder, OneCommunicatorForBothDirectionsDeadlocks) {
  const auto steps = [](int back) {
    return two_connected({send(0, 0, 1), send(0, 0, 1), receive(back, back, 1)},
                         {receive(0, 0, 0), send(back, back, 0), receive(0, 0, 0)});
  };
  expect_one(steps(0), kCycle);
  expect_none(steps(1));
}

// On whatever streams: NCCL runs the calls of one communicator one after another.
TEST(NcclOrder, OneCommunicatorOnTwoStreams) {
  expect_one(two_connected({send(0, 0, 1), send(0, 0, 1), receive(0, 1, 1)},
                           {receive(0, 0, 0), send(0, 1, 0), receive(0, 0, 0)}),
             kCycle);
}

TEST(NcclOrder, TransfersOfOneGroupDoNotWaitForEachOther) {
  expect_none(two_connected({messages(0, 0, {{true, 1, 4, "f32"}, {false, 1, 4, "f32"}})},
                            {messages(0, 0, {{true, 0, 4, "f32"}, {false, 0, 4, "f32"}})}));
  expect_one(two_connected({send(0, 0, 1), receive(0, 0, 1)}, {send(0, 0, 0), receive(0, 0, 0)}), kCycle);
}

TEST(NcclOrder, WaitsOfTheHostAndOfStreamsCount) {
  for (const int waiting : {-1, 1}) {
    const auto crossed = [&](int64_t until) {
      return two_connected({sum(0, 0), wait_for(0, until, waiting), sum(1, 1)},
                           {sum(1, 1), wait_for(1, kConnecting + 1, waiting < 0 ? -1 : 0), sum(0, 0)});
    };
    expect_one(crossed(kConnecting + 1), kCycle);
    expect_none(crossed(kConnecting));  // for what came before
  }
}

// A barrier of the host that one rank reaches only after a call that the other makes behind it.
TEST(NcclOrder, CallsOfTheHostBlock) {
  OrderRecord record = two_connected({sum(0, 0), wait_for(0, kConnecting + 1), host_call(2, "barrier")},
                                     {host_call(2, "barrier"), sum(0, 0)});
  record.comms.push_back({"host 2", {0, 1}});
  expect_one(record, kCycle);
  record.ranks[0].erase(record.ranks[0].begin() + kConnecting + 1);
  expect_none(record);
}

}  // namespace
}  // namespace trifold::test
