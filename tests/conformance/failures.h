// Mismatched calls, missing ranks, abort: an Error on every rank, never a hang.
#pragma once

#include "conformance/communicator_support.h"

namespace trifold::test {

template <class Host>
class FailureConformance : public CommunicatorTest<Host> {};
TYPED_TEST_SUITE_P(FailureConformance);

TYPED_TEST_P(FailureConformance, MismatchIsTheSameErrorOnEveryRankAndTheWorldGoesOn) {
  this->run([](Communicator& comm) {
    if (!has_ranks(comm, 2) || !compares_calls(comm)) return;
    OwnStream stream;
    const bool odd = comm.rank() == comm.size() - 1;
    Values<float> four(4), five(5);
    Values<int32_t> ints(4);
    const auto odd_rank = "rank " + std::to_string(comm.size() - 1);

    auto text = error_of([&] { comm.all_reduce(odd ? five.tensor() : four.tensor(), Reduce::Sum, stream); });
    EXPECT_CONTAINS(text, odd_rank + " calls all_reduce(sum) of 5 f32");
    EXPECT_CONTAINS(text, "all_reduce(sum) of 4 f32");
    text = error_of([&] { comm.all_reduce(odd ? ints.tensor() : four.tensor(), Reduce::Sum, stream); });
    EXPECT_CONTAINS(text, odd_rank + " calls all_reduce(sum) of 4 i32, call 1");
    text = error_of([&] { comm.all_reduce(four.tensor(), odd ? Reduce::Max : Reduce::Sum, stream); });
    EXPECT_CONTAINS(text, odd_rank + " calls all_reduce(max)");
    text = error_of([&] {
      if (odd)
        comm.broadcast(four.tensor(), 0, stream);
      else
        comm.all_reduce(four.tensor(), Reduce::Sum, stream);
    });
    EXPECT_CONTAINS(text, odd_rank + " calls broadcast(root 0) of 4 f32");
    EXPECT_CONTAINS(text, "all_reduce(sum) of 4 f32");
    text = error_of([&] { comm.broadcast(four.tensor(), odd ? 1 : 0, stream); });
    EXPECT_CONTAINS(text, "broadcast(root 1)");

    // A mistake that only one rank can see is an Error on all.
    text = error_of([&] { comm.all_gather(odd ? five.tensor() : four.tensor(), ints.tensor(), stream); });
    EXPECT_CONTAINS(text, "calls all_gather");
    text = error_of([&] { comm.broadcast(four.tensor(), odd ? comm.size() : 0, stream); });
    EXPECT_CONTAINS(text, odd_rank + " calls broadcast");
    EXPECT_CONTAINS(text, "not a rank of this communicator");

    Values<float> one(1, 1);
    comm.all_reduce(one.tensor(), Reduce::Sum, stream);
    EXPECT_EQ(one[0], static_cast<float>(comm.size()));
  });
}

TYPED_TEST_P(FailureConformance, MismatchedRowsOfAllToAll) {
  this->run([](Communicator& comm) {
    if (!has_ranks(comm, 2) || !compares_calls(comm)) return;
    OwnStream stream;
    const auto size = static_cast<size_t>(comm.size());
    std::vector<int64_t> in_rows(size, 1), out_rows(size, 1);
    if (comm.rank() == 0) in_rows[1] = 3;
    Values<float> in(size + 2), out(size);
    const Tensor in_tensor = in.tensor().rows(0, static_cast<int64_t>(comm.rank() == 0 ? size + 2 : size));
    const auto text = error_of([&] { comm.all_to_all(out.tensor(), in_tensor, out_rows, in_rows, stream); });
    EXPECT_CONTAINS(text, "rank 0 sends 3 rows to rank 1, which expects 1");
    comm.barrier();
  });
}

TYPED_TEST_P(FailureConformance, MismatchedExchange) {
  this->run([](Communicator& comm) {
    if (!has_ranks(comm, 2) || !compares_calls(comm)) return;
    OwnStream stream;
    Values<float> four(4);
    Values<int32_t> five(5);
    if (comm.rank() < 2) {
      const auto text = error_of([&] {
        if (comm.rank() == 0)
          comm.exchange(std::vector<Transfer>{send(1, four.tensor())}, stream);
        else
          comm.exchange(std::vector<Transfer>{receive(0, five.tensor())}, stream);
      });
      EXPECT_CONTAINS(text, "rank 0 sends 4 f32 to rank 1, which expects 5 i32");
    }
    comm.barrier();
  });
}

TYPED_TEST_P(FailureConformance, ReducingBytesIsRefused) {
  this->run([](Communicator& comm) {
    OwnStream stream;
    Values<uint8_t> bytes(8);
    EXPECT_CONTAINS(error_of([&] { comm.all_reduce(bytes.tensor(), Reduce::Sum, stream); }),
                    "can be reduced");
  });
}

// When a process ends its messages are lost: after a failure, gives the others time to receive them.
inline void linger(const Communicator& comm) {
  if (comm.backend() != "thread") std::this_thread::sleep_for(2 * kShort);
}

TYPED_TEST_P(FailureConformance, TimeoutNamesTheRanksThatDidNotCome) {
  this->run(
      [](Communicator& comm) {
        if (!has_ranks(comm, 2)) return;
        OwnStream stream;
        Values<float> four(4);
        const int late = comm.size() - 1;
        if (comm.rank() == late) {
          std::this_thread::sleep_for(2 * kShort);
          // The others have ended: their memory must not be touched any more.
          error_of([&] { comm.all_reduce(four.tensor(), Reduce::Sum, stream); });
          return;
        }
        const auto text = error_of([&] { comm.all_reduce(four.tensor(), Reduce::Sum, stream); });
        EXPECT_CONTAINS(text, "300 ms");
        EXPECT_CONTAINS(text, "all_reduce(sum) of 4 f32");
        if (comm.backend() != "nccl") {
          EXPECT_CONTAINS(text, "rank " + std::to_string(late));
        }
        linger(comm);
      },
      kShort);
}

TYPED_TEST_P(FailureConformance, TimeoutOfAnExchangeNamesThePeer) {
  this->run(
      [](Communicator& comm) {
        if (!has_ranks(comm, 2)) return;
        OwnStream stream;
        Values<float> four(4);
        if (comm.rank() == 0) {
          const auto text =
              error_of([&] { comm.exchange(std::vector<Transfer>{receive(1, four.tensor())}, stream); });
          EXPECT_CONTAINS(text, "300 ms");
          EXPECT_CONTAINS(text, comm.backend() == "nccl" ? "4 f32 from rank 1" : "for rank 1 to send 4 f32");
        } else {
          std::this_thread::sleep_for(2 * kShort);  // the world must not end while rank 0 waits
        }
        linger(comm);
      },
      kShort);
}

TYPED_TEST_P(FailureConformance, AbortWakesEveryoneAlsoInGroups) {
  this->run([](Communicator& comm) {
    if (!has_ranks(comm, 2)) return;
    OwnStream stream;
    OwnStream worker(Stream::Mode::Worker);
    // Rank 0 alone, the others together and waiting for each other, on two communicators at once.
    const auto group = comm.split(comm.rank() == 0 ? 0 : 1, 0);
    const auto twin = comm.split(0, 0);
    Values<float> four(4), other(4);
    if (comm.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      comm.abort("the disk is full");
    } else {
      twin->all_reduce(other.tensor(), Reduce::Sum, worker);
      const auto text = error_of([&] {
        if (comm.rank() == 1)  // its group could continue, but it waits for rank 0
          comm.exchange(std::vector<Transfer>{receive(0, four.tensor())}, stream);
        else
          group->barrier();
      });
      EXPECT_CONTAINS(text, "the disk is full");
      EXPECT_CONTAINS(error_of([&] { worker.get().synchronize(); }), "the disk is full");
    }
    EXPECT_CONTAINS(error_of([&] { comm.barrier(); }), "the disk is full");
    EXPECT_CONTAINS(error_of([&] { group->all_reduce(four.tensor(), Reduce::Sum, stream); }),
                    "the disk is full");
    linger(comm);
  });
}

REGISTER_TYPED_TEST_SUITE_P(FailureConformance, MismatchIsTheSameErrorOnEveryRankAndTheWorldGoesOn,
                            MismatchedRowsOfAllToAll, MismatchedExchange, ReducingBytesIsRefused,
                            TimeoutNamesTheRanksThatDidNotCome, TimeoutOfAnExchangeNamesThePeer,
                            AbortWakesEveryoneAlsoInGroups);

}  // namespace trifold::test
