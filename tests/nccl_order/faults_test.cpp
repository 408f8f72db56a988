// Faults planted in real runs are found: the check is worth something.
#include "core/tensor.h"
#include "fake_device/runs.h"
#include "nccl_order/check.h"
#include "nccl_order/over_nccl.h"
#include "support/expert_runs.h"

namespace trifold::test {
namespace {

// Runs `act` on ranks with a stream and memory of their devices, and returns what the check says.
using Act = std::function<void(Communicator& comm, Tensor tensor, Stream& stream)>;
std::vector<std::string> problems_of(int ranks, const Act& act) {
  MeshConfig mesh;
  mesh.ranks = ranks;
  mesh.device = ComputeDevice::Cuda;
  mesh.distributed_timeout_minutes = 1;
  start_over_nccl(mesh, [&](Communicator& comm) {
    ThreadPool pool(1);
    Device* device = cuda_ops(comm.rank()).device;
    Stream stream(Stream::Mode::Inline, pool, device);
    Buffer memory(64, device);
    act(comm, {memory.data(), DType::F32, {8}}, stream);
    stream.synchronize();
  });
  return order_problems(take_record());
}
std::vector<std::string> problems_of_two(const Act& act) { return problems_of(2, act); }

TEST(NcclFaults, EqualCallsAreNone) {
  EXPECT_TRUE(problems_of_two([](Communicator& comm, Tensor tensor, Stream& stream) {
                comm.all_reduce(tensor, Reduce::Sum, stream);
                comm.all_gather(tensor, tensor.rows(0, 4), stream);
              }).empty());
}

TEST(NcclFaults, CallsSwappedOnOneRank) {
  const auto problems = problems_of_two([](Communicator& comm, Tensor tensor, Stream& stream) {
    if (comm.rank() == 0) comm.all_reduce(tensor, Reduce::Sum, stream);
    comm.broadcast(tensor, 0, stream);
    if (comm.rank() == 1) comm.all_reduce(tensor, Reduce::Sum, stream);
  });
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("is all_reduce(sum) of 8 f32 on rank 0 and broadcast of 8 f32 from 0 on rank 1"),
            std::string::npos)
      << problems[0];
}

TEST(NcclFaults, OneRankSumsAnotherSize) {
  const auto problems = problems_of_two([](Communicator& comm, Tensor tensor, Stream& stream) {
    comm.all_reduce(tensor.rows(0, 8 - comm.rank()), Reduce::Sum, stream);
  });
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("of 7 f32 on rank 1"), std::string::npos) << problems[0];
}

// Two communicators whose first calls wait for each other: here the run ends, over NCCL it would not.
TEST(NcclFaults, FirstCallsInOppositeOrders) {
  const auto problems = problems_of_two([](Communicator& comm, Tensor tensor, Stream& stream) {
    ThreadPool pool(1);
    Stream other(Stream::Mode::Inline, pool, cuda_ops(comm.rank()).device);
    const std::unique_ptr<Communicator> second = comm.split(0, comm.rank());
    if (comm.rank() == 0) comm.all_reduce(tensor.rows(0, 4), Reduce::Sum, stream);
    second->all_reduce(tensor.rows(4, 8), Reduce::Sum, other);
    if (comm.rank() == 1) comm.all_reduce(tensor.rows(0, 4), Reduce::Sum, stream);
    other.synchronize();
  });
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_NE(problems[0].find("these wait for each other"), std::string::npos) << problems[0];
}

// The messages of a pipeline rank as the papers give 1F1B: everything is received when it is needed.
void send_1f1b(Communicator& forward, Communicator& backward, Tensor tensor, Stream& forward_stream,
               Stream& backward_stream) {
  constexpr int kMicros = 8;
  const int rank = forward.rank(), last = forward.size() - 1;
  const auto message = [&](Transfer::Direction direction, int peer, bool is_forward) {
    if (peer < 0 || peer > last) return;
    const Transfer transfer{direction, peer, is_forward ? tensor.rows(0, 4) : tensor.rows(4, 8)};
    (is_forward ? forward : backward).exchange({&transfer, 1}, is_forward ? forward_stream : backward_stream);
  };
  const auto compute_forward = [&] {
    message(Transfer::Direction::Receive, rank - 1, true);
    message(Transfer::Direction::Send, rank + 1, true);
  };
  const auto compute_backward = [&] {
    message(Transfer::Direction::Receive, rank + 1, false);
    message(Transfer::Direction::Send, rank - 1, false);
  };
  const int ahead = last - rank;
  for (int micro = 0; micro < ahead; ++micro) compute_forward();
  for (int micro = ahead; micro < kMicros; ++micro) {
    compute_forward();
    compute_backward();
  }
  for (int micro = 0; micro < ahead; ++micro) compute_backward();
}

// With a communicator and a stream for each direction it cannot deadlock; on one of either it must, although it does not
// here, where sends do not wait.
TEST(NcclFaults, BothDirectionsOf1F1BOnOneCommunicatorOrStream) {
  for (const auto& [comms, streams] : {std::pair(2, 2), {1, 2}, {2, 1}, {1, 1}}) {
    SCOPED_TRACE(fmt::format("{} communicators, {} streams", comms, streams));
    const auto problems = problems_of(
        4, [&, comms = comms, streams = streams](Communicator& comm, Tensor tensor, Stream& stream) {
          ThreadPool pool(1);
          Stream second(Stream::Mode::Inline, pool, cuda_ops(comm.rank()).device);
          const std::unique_ptr<Communicator> backward = comm.split(0, comm.rank());
          send_1f1b(comm, comms == 2 ? *backward : comm, tensor, stream, streams == 2 ? second : stream);
          second.synchronize();
        });
    if (comms == 2 && streams == 2) {
      EXPECT_TRUE(problems.empty()) << problems.front();
      continue;
    }
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_NE(problems[0].find("these wait for each other"), std::string::npos) << problems[0];
  }
}

// Two sums of a run change places on its last rank.
TEST(NcclFaults, SwappedSumsOfARun) {
  PretrainConfig config = on_mesh(short_run(), 4);
  config.zero.zero_stage = 1;
  config.zero.zero_min_unit_params = 4000;
  train(on_device(config));
  OrderRecord record = expect_ordered(4);
  auto& entries = record.ranks.back();
  bool swapped = false;
  for (auto first = entries.begin(); first != entries.end() && !swapped; ++first) {
    if (first->kind != OrderEntry::Kind::Collective) continue;
    const auto next = std::find_if(first + 1, entries.end(), [&](const OrderEntry& entry) {
      return entry.kind == first->kind && entry.comm == first->comm;
    });
    if (next == entries.end() || to_string(*first) == to_string(*next)) continue;
    std::swap(*first, *next);
    swapped = true;
  }
  ASSERT_TRUE(swapped);
  EXPECT_FALSE(order_problems(record).empty());
}

// Two gradients of different communicators change places on one rank: each communicator still has the same calls on all
// its ranks, but a stream of that rank waits for one of the others, which waits for it.
TEST(NcclFaults, SwappedCommunicatorsOfARun) {
  const ExpertMesh mesh{.dp = 4, .ep = 2, .zero = 1};
  PretrainConfig config = mesh.of(run_with_experts(8, false));
  config.batch.train_iters = 1;
  train(on_device(config));
  const OrderRecord record = expect_ordered(4);
  const auto& entries = record.ranks.back();
  int swapped = 0;
  for (size_t first = 0; first < entries.size(); ++first) {
    if (entries[first].kind != OrderEntry::Kind::Collective) continue;
    const auto next = std::find_if(
        entries.begin() + static_cast<ptrdiff_t>(first) + 1, entries.end(), [&](const OrderEntry& entry) {
          return entry.kind == OrderEntry::Kind::Collective && entry.stream == entries[first].stream;
        });
    if (next == entries.end() || next->comm == entries[first].comm) continue;
    OrderRecord changed = record;
    std::swap(changed.ranks.back()[first], changed.ranks.back()[static_cast<size_t>(next - entries.begin())]);
    ++swapped;
    const auto problems = order_problems(changed);
    ASSERT_EQ(problems.size(), 1U) << "entry " << first;
    EXPECT_NE(problems[0].find("these wait for each other"), std::string::npos) << problems[0];
  }
  EXPECT_GT(swapped, 5);
}

}  // namespace
}  // namespace trifold::test
