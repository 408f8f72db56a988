// Exchanges between pairs of ranks, split groups, and streams.
#pragma once

#include "comm/meet.h"
#include "conformance/communicator_support.h"

namespace trifold::test {

template <class Host>
class ExchangeConformance : public CommunicatorTest<Host> {};
TYPED_TEST_SUITE_P(ExchangeConformance);

TYPED_TEST_P(ExchangeConformance, ExchangeInARing) {
  this->run([](Communicator& comm) {
    OwnStream stream;
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    for (size_t count : {size_t{0}, size_t{1}, size_t{300'001}}) {
      auto out = filled<float>(count, [&](size_t i) { return stamp<float>(comm.rank(), i); });
      Values<float> in(count);
      const std::vector<Transfer> transfers{send(next, out.tensor()), receive(previous, in.tensor())};
      comm.exchange(transfers, stream);
      for (size_t i = 0; i < count; ++i) ASSERT_EQ(in[i], stamp<float>(previous, i));
    }
  });
}

// Pairs cross: both ranks send first, two messages each, of different types, and they match in the order
// listed.
TYPED_TEST_P(ExchangeConformance, ExchangeCrossedPairsInOrder) {
  this->run([](Communicator& comm) {
    OwnStream stream;
    const int peer = comm.rank() ^ 1;
    if (peer < comm.size()) {
      Values<int32_t> first(4, 10 + comm.rank()), first_in(4);
      Values<double> second(9, 0.5 + comm.rank()), second_in(9);
      Values<int32_t> third(4, 30 + comm.rank()), third_in(4);
      const std::vector<Transfer> transfers{
          send(peer, first.tensor()), receive(peer, first_in.tensor()),  send(peer, second.tensor()),
          send(peer, third.tensor()), receive(peer, second_in.tensor()), receive(peer, third_in.tensor())};
      comm.exchange(transfers, stream);
      EXPECT_EQ(first_in[3], 10 + peer);
      EXPECT_EQ(second_in[8], 0.5 + peer);
      EXPECT_EQ(third_in[3], 30 + peer);
    }
    comm.barrier();
  });
}

// Rank 0 lists its receives from rank 1 first, but rank 1 answers only after a chain that ends at rank 0's
// other transfer: an exchange that completed its transfers in the order listed would deadlock. The ranks meet first,
// because over NCCL first messages wait for each other.
TYPED_TEST_P(ExchangeConformance, ExchangeCompletesInAnyOrder) {
  this->run([](Communicator& comm) {
    if (comm.size() < 3) return;
    OwnStream stream;
    Values<int32_t> a(1), b(1);
    std::vector<int> others;
    for (int rank = 0; rank < comm.size(); ++rank)
      if (rank != comm.rank()) others.push_back(rank);
    meet(comm, others, others, stream);
    const auto call = [&](std::vector<Transfer> transfers) { comm.exchange(transfers, stream); };
    if (comm.rank() == 0) {
      call({receive(1, a.tensor()), receive(2, b.tensor())});
      EXPECT_EQ(a[0], 1);
      EXPECT_EQ(b[0], 2);
    } else if (comm.rank() == 1) {
      call({receive(2, b.tensor())});
      a[0] = 1;
      call({send(0, a.tensor())});
    } else if (comm.rank() == 2) {
      b[0] = 2;
      call({send(0, b.tensor())});
      call({send(1, b.tensor())});
    }
  });
}

TYPED_TEST_P(ExchangeConformance, ExchangeNeedsOnlyTheRanksNamed) {
  this->run([](Communicator& comm) {
    OwnStream stream;
    Values<float> value(3, static_cast<float>(comm.rank()));
    const int last = comm.size() - 1;
    for (int repeat = 0; repeat < 20 && comm.size() > 1; ++repeat) {
      if (comm.rank() == 0) comm.exchange(std::vector<Transfer>{send(last, value.tensor())}, stream);
      if (comm.rank() == last) comm.exchange(std::vector<Transfer>{receive(0, value.tensor())}, stream);
    }
    if (comm.rank() == last) {
      EXPECT_EQ(value[2], 0);
    }
    comm.exchange({}, stream);
  });
}

TYPED_TEST_P(ExchangeConformance, ExchangeWithItself) {
  this->run([](Communicator& comm) {
    OwnStream stream;
    Values<uint8_t> from(10, static_cast<uint8_t>(7 + comm.rank())), to(10);
    const std::vector<Transfer> transfers{receive(comm.rank(), to.tensor()),
                                          send(comm.rank(), from.tensor())};
    comm.exchange(transfers, stream);
    EXPECT_EQ(to[9], 7 + comm.rank());
  });
}

TYPED_TEST_P(ExchangeConformance, SplitByColorAndKey) {
  this->run([](Communicator& comm) {
    OwnStream stream;
    const int color = comm.rank() % 2;
    const auto group = comm.split(color, -comm.rank());  // the highest rank comes first
    std::vector<int> members;
    for (int r = comm.size() - 1; r >= 0; --r)
      if (r % 2 == color) members.push_back(r);
    ASSERT_EQ(group->size(), static_cast<int>(members.size()));
    ASSERT_EQ(members[static_cast<size_t>(group->rank())], comm.rank());
    Values<int32_t> mine(1, comm.rank()), all(members.size());
    group->all_gather(all.tensor(), mine.tensor(), stream);
    EXPECT_EQ(all.data, members);
    // Equal keys keep the order of the ranks; a group can be split again; the parent remains usable.
    const auto again = group->split(0, 0);
    EXPECT_EQ(again->rank(), group->rank());
    Values<int64_t> one(1, 1);
    again->all_reduce(one.tensor(), Reduce::Sum, stream);
    EXPECT_EQ(one[0], group->size());
    comm.all_reduce(one.tensor(), Reduce::Max, stream);
    EXPECT_EQ(one[0], (comm.size() + 1) / 2);
  });
}

// Gradients go over one communicator on a worker stream while the main thread uses two others.
TYPED_TEST_P(ExchangeConformance, WorkerStreamOverlapsOtherCommunicators) {
  this->run([](Communicator& comm) {
    const auto gradients = comm.split(0, comm.rank());
    const auto activations = comm.split(0, comm.rank());
    OwnStream worker(Stream::Mode::Worker);
    OwnStream stream;
    const size_t buckets = 30;
    std::vector<Values<float>> bucket(buckets, Values<float>(5'000, 1.0F + static_cast<float>(comm.rank())));
    const auto sum = static_cast<float>(comm.size() * (comm.size() + 1) / 2);
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    for (size_t i = 0; i < buckets; ++i) {
      gradients->all_reduce(bucket[i].tensor(), Reduce::Sum, worker);
      Values<float> out(100, static_cast<float>(i)), in(100), total(1, 1);
      std::vector<Transfer> transfers{send(next, out.tensor()), receive(previous, in.tensor())};
      activations->exchange(transfers, stream);
      comm.all_reduce(total.tensor(), Reduce::Sum, stream);
      ASSERT_EQ(in[99], static_cast<float>(i));
      ASSERT_EQ(total[0], static_cast<float>(comm.size()));
    }
    worker.get().synchronize();
    for (auto& values : bucket) ASSERT_EQ(values[4'999], sum);
  });
}

// The row counts and the list of transfers may be destroyed before the stream reaches the call.
TYPED_TEST_P(ExchangeConformance, ArgumentListsAreCopied) {
  this->run([](Communicator& comm) {
    OwnStream worker(Stream::Mode::Worker);
    worker.get().run([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
    const auto size = static_cast<size_t>(comm.size());
    Values<int32_t> in(size, comm.rank()), out(size), from(1, 5), to(1);
    {
      std::vector<int64_t> rows(size, 1);
      std::vector<Transfer> transfers{send(comm.rank(), from.tensor()), receive(comm.rank(), to.tensor())};
      comm.all_to_all(out.tensor(), in.tensor(), rows, rows, worker);
      comm.exchange(transfers, worker);
      std::fill(rows.begin(), rows.end(), -1);
      transfers.assign(2, send(-1, Tensor{}));
    }
    worker.get().synchronize();
    for (size_t r = 0; r < size; ++r) EXPECT_EQ(out[r], static_cast<int32_t>(r));
    EXPECT_EQ(to[0], 5);
  });
}

TYPED_TEST_P(ExchangeConformance, DryStreamDoesNothing) {
  this->run([](Communicator& comm) {
    if (comm.rank() != 0) return;  // alone, rank 0 would wait for ever on any other stream
    OwnStream dry(Stream::Mode::Dry);
    const Tensor nothing{nullptr, DType::F32, {static_cast<int64_t>(comm.size()) * 4}};
    const Tensor part{nullptr, DType::F32, {4}};
    const std::vector<int64_t> rows(static_cast<size_t>(comm.size()), 4);
    comm.all_reduce(nothing, Reduce::Sum, dry);
    comm.reduce_scatter(part, nothing, Reduce::Sum, dry);
    comm.all_gather(nothing, part, dry);
    comm.all_to_all(nothing, nothing, rows, rows, dry);
    comm.broadcast(nothing, 0, dry);
    comm.exchange(std::vector<Transfer>{receive(comm.size() - 1, part)}, dry);
  });
}

REGISTER_TYPED_TEST_SUITE_P(ExchangeConformance, ExchangeInARing, ExchangeCrossedPairsInOrder,
                            ExchangeCompletesInAnyOrder, ExchangeNeedsOnlyTheRanksNamed, ExchangeWithItself,
                            SplitByColorAndKey, WorkerStreamOverlapsOtherCommunicators,
                            ArgumentListsAreCopied, DryStreamDoesNothing);

}  // namespace trifold::test
