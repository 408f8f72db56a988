// The contract of Communicator, one test per clause, for every back end.
//
// A back end instantiates the suite with a host: a default-constructible type with
//   void run(const std::function<void(Communicator&)>& rank_main, std::chrono::milliseconds timeout)
// which calls rank_main on every rank of a fresh world (all of them in this process, or the one this process
// is), and throws what a rank threw. A clause does not depend on the number of ranks; those that need two
// skip with one.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "support/ranks.h"

namespace trifold::test {

inline constexpr std::chrono::milliseconds kLong{20'000};
inline constexpr std::chrono::milliseconds kShort{300};

// A vector that can be seen as a tensor.
template <class T>
struct Values {
  explicit Values(size_t count, T value = T{}) : data(count, value) {}
  Tensor tensor() { return tensor({static_cast<int64_t>(data.size())}); }
  Tensor tensor(const Shape& shape) { return {data.data(), TypeOf<T>::kValue, shape}; }
  T& operator[](size_t i) { return data[i]; }

  std::vector<T> data;
};

// Element i of rank `rank`, for tests that recognise where a number came from. Exact in every dtype.
template <class T>
T stamp(int rank, size_t i) {
  return static_cast<T>((static_cast<size_t>(rank) * 31 + i * 7 + 1) % 100);
}

// A number whose sums depend on their order.
template <class T>
T awkward(int rank, size_t i) {
  return static_cast<T>(std::sin(1.0 + rank * 12.9898 + static_cast<double>(i) * 78.233) *
                        std::pow(10.0, rank * 2 - 3));
}

template <class T, class Make>
Values<T> filled(size_t count, Make make) {
  Values<T> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = make(i);
  return values;
}

// ((x0 + x1) + x2) + ... or the maximum, over ranks.
template <class T, class Make>
T in_rank_order(int size, size_t i, Reduce how, Make make) {
  T sum = make(0, i);
  for (int r = 1; r < size; ++r)
    sum = how == Reduce::Sum ? static_cast<T>(sum + make(r, i)) : std::max<T>(sum, make(r, i));
  return sum;
}

// The text of the Error that `body` throws; a test failure when it throws none.
template <class Body>
std::string error_of(Body body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

#define EXPECT_CONTAINS(text, part) EXPECT_PRED2(::trifold::test::contains, text, part)

template <class Host>
class CommunicatorConformance : public ::testing::Test {
 protected:
  void run(const std::function<void(Communicator&)>& rank_main, std::chrono::milliseconds timeout = kLong) {
    host_.run(rank_main, timeout);
  }
  Host host_;
};

TYPED_TEST_SUITE_P(CommunicatorConformance);

template <class T>
void all_reduce_clause(Communicator& comm) {
  OwnStream stream;
  for (size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{1000}, size_t{100'003}})
    for (Reduce how : {Reduce::Sum, Reduce::Max}) {
      auto values = filled<T>(count, [&](size_t i) { return stamp<T>(comm.rank(), i); });
      comm.all_reduce(values.tensor(), how, stream);
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(values[i], in_rank_order<T>(comm.size(), i, how, stamp<T>))
            << "element " << i << " of " << count;
    }
}

TYPED_TEST_P(CommunicatorConformance, AllReduceOfEveryNumberType) {
  this->run([](Communicator& comm) {
    all_reduce_clause<double>(comm);
    all_reduce_clause<float>(comm);
    all_reduce_clause<int64_t>(comm);
    all_reduce_clause<int32_t>(comm);
  });
}

// In 16 bits each addition is made in f32 and rounded. An exact sum rounded once is the same number: f32 has
// more than twice the digits.
template <class T>
void rounded_sums_clause(Communicator& comm) {
  OwnStream stream;
  const auto size = static_cast<size_t>(comm.size());
  const size_t part = 5'003;
  const auto make = [](int rank, size_t i) { return T(awkward<double>(rank, i)); };
  const auto mine = [&](size_t i) { return make(comm.rank(), i); };
  auto sums = filled<T>(part * size, mine);
  auto most = sums;
  auto scattered_in = sums;
  Values<T> scattered(part);
  comm.all_reduce(sums.tensor(), Reduce::Sum, stream);
  comm.all_reduce(most.tensor(), Reduce::Max, stream);
  comm.reduce_scatter(scattered.tensor(), scattered_in.tensor(), Reduce::Sum, stream);
  for (size_t i = 0; i < part * size; ++i) {
    T sum = make(0, i);
    double largest = static_cast<double>(sum);
    for (int r = 1; r < comm.size(); ++r) {
      const auto next = static_cast<double>(make(r, i));
      sum = T(static_cast<double>(sum) + next);
      largest = std::max(largest, next);
    }
    ASSERT_EQ(sums[i].bits, sum.bits) << "element " << i;
    ASSERT_EQ(static_cast<double>(most[i]), largest) << "element " << i;
    const size_t first = part * static_cast<size_t>(comm.rank());
    if (i >= first && i < first + part) {
      ASSERT_EQ(scattered[i - first].bits, sum.bits) << "element " << i;
    }
  }
}

TYPED_TEST_P(CommunicatorConformance, SumsOf16BitFloatsAreRoundedAfterEachAddition) {
  this->run([](Communicator& comm) {
    rounded_sums_clause<Bfloat16>(comm);
    rounded_sums_clause<Float16>(comm);
  });
}

template <class T>
void rank_order_clause(Communicator& comm) {
  OwnStream stream;
  const auto size = static_cast<size_t>(comm.size());
  const size_t part = 40'001;
  const auto make = [&](size_t i) { return awkward<T>(comm.rank(), i); };
  auto reduced = filled<T>(part * size, make);
  auto scattered_in = filled<T>(part * size, make);
  Values<T> scattered(part);
  comm.all_reduce(reduced.tensor(), Reduce::Sum, stream);
  comm.reduce_scatter(scattered.tensor(), scattered_in.tensor(), Reduce::Sum, stream);
  for (size_t i = 0; i < reduced.data.size(); ++i)
    ASSERT_EQ(reduced[i], in_rank_order<T>(comm.size(), i, Reduce::Sum, awkward<T>)) << "element " << i;
  const size_t first = part * static_cast<size_t>(comm.rank());
  for (size_t i = 0; i < part; ++i) ASSERT_EQ(scattered[i], reduced[first + i]) << "element " << i;
}

TYPED_TEST_P(CommunicatorConformance, SumsAreInRankOrderToTheLastBit) {
  this->run([](Communicator& comm) {
    ASSERT_TRUE(comm.sums_in_rank_order());
    rank_order_clause<float>(comm);
    rank_order_clause<double>(comm);
  });
}

TYPED_TEST_P(CommunicatorConformance, ReduceScatterAlsoInPlace) {
  this->run([](Communicator& comm) {
    OwnStream stream;
    const auto size = static_cast<size_t>(comm.size());
    for (size_t part : {size_t{0}, size_t{1}, size_t{3}, size_t{33'001}})
      for (bool in_place : {false, true})
        for (Reduce how : {Reduce::Sum, Reduce::Max}) {
          auto in = filled<float>(part * size, [&](size_t i) { return awkward<float>(comm.rank(), i); });
          const auto before = in.data;
          const size_t first = part * static_cast<size_t>(comm.rank());
          Values<float> apart(part);
          const Tensor own =
              in.tensor().rows(static_cast<int64_t>(first), static_cast<int64_t>(first + part));
          const Tensor out = in_place ? own : apart.tensor();
          comm.reduce_scatter(out, in.tensor(), how, stream);
          for (size_t i = 0; i < part; ++i)
            ASSERT_EQ(out.as<float>()[i], in_rank_order<float>(comm.size(), first + i, how, awkward<float>));
          for (size_t i = 0; i < before.size(); ++i)
            if (!in_place || i < first || i >= first + part) {
              ASSERT_EQ(in[i], before[i]) << "`in` was changed";
            }
        }
  });
}

template <class T>
void all_gather_clause(Communicator& comm, bool in_place) {
  OwnStream stream;
  const auto size = static_cast<size_t>(comm.size());
  for (size_t part : {size_t{0}, size_t{1}, size_t{5}, size_t{20'001}}) {
    auto in = filled<T>(part, [&](size_t i) { return stamp<T>(comm.rank(), i); });
    Values<T> out(part * size);
    Tensor source = in.tensor();
    if (in_place) {
      const auto first = static_cast<int64_t>(part) * comm.rank();
      source = out.tensor().rows(first, first + static_cast<int64_t>(part));
      std::copy(in.data.begin(), in.data.end(), source.as<T>());
    }
    comm.all_gather(out.tensor(), source, stream);
    for (size_t r = 0; r < size; ++r)
      for (size_t i = 0; i < part; ++i) ASSERT_EQ(out[r * part + i], stamp<T>(static_cast<int>(r), i));
  }
}

TYPED_TEST_P(CommunicatorConformance, AllGatherOfEveryTypeAlsoInPlace) {
  this->run([](Communicator& comm) {
    for (bool in_place : {false, true}) {
      all_gather_clause<double>(comm, in_place);
      all_gather_clause<float>(comm, in_place);
      all_gather_clause<int64_t>(comm, in_place);
      all_gather_clause<int32_t>(comm, in_place);
      all_gather_clause<uint16_t>(comm, in_place);
      all_gather_clause<uint8_t>(comm, in_place);
    }
  });
}

// Rank a sends (a + 2 b) % 4 rows to rank b: uneven, and often none.
inline int64_t rows_from_to(int from, int to) { return (from + 2 * to) % 4; }

TYPED_TEST_P(CommunicatorConformance, AllToAllUnevenWithEmptyRows) {
  this->run([](Communicator& comm) {
    OwnStream stream;
    const int64_t width = 3;
    std::vector<int64_t> in_rows, out_rows;
    int64_t in_total = 0, out_total = 0;
    for (int r = 0; r < comm.size(); ++r) {
      in_total += in_rows.emplace_back(rows_from_to(comm.rank(), r));
      out_total += out_rows.emplace_back(rows_from_to(r, comm.rank()));
    }
    Values<int32_t> in(static_cast<size_t>(in_total * width));
    size_t at = 0;
    for (int r = 0; r < comm.size(); ++r)
      for (int64_t i = 0; i < in_rows[static_cast<size_t>(r)] * width; ++i)
        in[at++] = comm.rank() * 10'000 + r * 100 + static_cast<int32_t>(i);
    Values<int32_t> out(static_cast<size_t>(out_total * width));
    comm.all_to_all(out.tensor({out_total, width}), in.tensor({in_total, width}), out_rows, in_rows, stream);
    at = 0;
    for (int r = 0; r < comm.size(); ++r)
      for (int64_t i = 0; i < out_rows[static_cast<size_t>(r)] * width; ++i)
        ASSERT_EQ(out[at++], r * 10'000 + comm.rank() * 100 + static_cast<int32_t>(i));
  });
}

TYPED_TEST_P(CommunicatorConformance, AllToAllWithNoRowsAtAll) {
  this->run([](Communicator& comm) {
    OwnStream stream;
    const std::vector<int64_t> none(static_cast<size_t>(comm.size()), 0);
    const Tensor empty{nullptr, DType::F32, {0, 7}};
    comm.all_to_all(empty, empty, none, none, stream);
    comm.barrier();
  });
}

TYPED_TEST_P(CommunicatorConformance, BroadcastFromEveryRoot) {
  this->run([](Communicator& comm) {
    OwnStream stream;
    for (int root = 0; root < comm.size(); ++root)
      for (size_t count : {size_t{0}, size_t{1}, size_t{123'457}}) {
        auto values = filled<uint16_t>(count, [&](size_t i) { return stamp<uint16_t>(comm.rank(), i); });
        comm.broadcast(values.tensor(), root, stream);
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], stamp<uint16_t>(root, i));
      }
  });
}

inline Transfer send(int peer, Tensor tensor) { return {Transfer::Direction::Send, peer, tensor}; }
inline Transfer receive(int peer, Tensor tensor) { return {Transfer::Direction::Receive, peer, tensor}; }

TYPED_TEST_P(CommunicatorConformance, ExchangeInARing) {
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
TYPED_TEST_P(CommunicatorConformance, ExchangeCrossedPairsInOrder) {
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
// other transfer: an exchange that completed its transfers in the order listed would wait for ever.
TYPED_TEST_P(CommunicatorConformance, ExchangeCompletesInAnyOrder) {
  this->run([](Communicator& comm) {
    if (comm.size() < 3) return;
    OwnStream stream;
    Values<int32_t> a(1), b(1);
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

TYPED_TEST_P(CommunicatorConformance, ExchangeNeedsOnlyTheRanksNamed) {
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

TYPED_TEST_P(CommunicatorConformance, ExchangeWithItself) {
  this->run([](Communicator& comm) {
    OwnStream stream;
    Values<uint8_t> from(10, static_cast<uint8_t>(7 + comm.rank())), to(10);
    const std::vector<Transfer> transfers{receive(comm.rank(), to.tensor()),
                                          send(comm.rank(), from.tensor())};
    comm.exchange(transfers, stream);
    EXPECT_EQ(to[9], 7 + comm.rank());
  });
}

TYPED_TEST_P(CommunicatorConformance, SplitByColorAndKey) {
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
    // Equal keys keep the order of the ranks; a group can be split again; the parent goes on working.
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
TYPED_TEST_P(CommunicatorConformance, WorkerStreamOverlapsOtherCommunicators) {
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

// The row counts and the list of transfers may go away before the stream gets to them.
TYPED_TEST_P(CommunicatorConformance, ArgumentListsAreCopied) {
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

TYPED_TEST_P(CommunicatorConformance, DryStreamDoesNothing) {
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

TYPED_TEST_P(CommunicatorConformance, MismatchIsTheSameErrorOnEveryRankAndTheWorldGoesOn) {
  this->run([](Communicator& comm) {
    if (comm.size() < 2) return;
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

    // What only one rank can see is an Error on all.
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

TYPED_TEST_P(CommunicatorConformance, MismatchedRowsOfAllToAll) {
  this->run([](Communicator& comm) {
    if (comm.size() < 2) return;
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

TYPED_TEST_P(CommunicatorConformance, MismatchedExchange) {
  this->run([](Communicator& comm) {
    if (comm.size() < 2) return;
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

TYPED_TEST_P(CommunicatorConformance, ReducingBytesIsRefused) {
  this->run([](Communicator& comm) {
    OwnStream stream;
    Values<uint8_t> bytes(8);
    EXPECT_CONTAINS(error_of([&] { comm.all_reduce(bytes.tensor(), Reduce::Sum, stream); }),
                    "can be reduced");
  });
}

// A process that ends takes its messages with it: after a failure give the others the time to hear of it.
inline void linger(const Communicator& comm) {
  if (comm.backend() == "mpi") std::this_thread::sleep_for(2 * kShort);
}

TYPED_TEST_P(CommunicatorConformance, TimeoutNamesTheRanksThatDidNotCome) {
  this->run(
      [](Communicator& comm) {
        if (comm.size() < 2) return;
        OwnStream stream;
        Values<float> four(4);
        const int late = comm.size() - 1;
        if (comm.rank() == late) {
          std::this_thread::sleep_for(2 * kShort);
          // The others are gone: their memory must not be touched any more.
          error_of([&] { comm.all_reduce(four.tensor(), Reduce::Sum, stream); });
          return;
        }
        const auto text = error_of([&] { comm.all_reduce(four.tensor(), Reduce::Sum, stream); });
        EXPECT_CONTAINS(text, "300 ms");
        EXPECT_CONTAINS(text, "all_reduce(sum) of 4 f32");
        EXPECT_CONTAINS(text, "rank " + std::to_string(late));
        linger(comm);
      },
      kShort);
}

TYPED_TEST_P(CommunicatorConformance, TimeoutOfAnExchangeNamesThePeer) {
  this->run(
      [](Communicator& comm) {
        if (comm.size() < 2) return;
        OwnStream stream;
        Values<float> four(4);
        if (comm.rank() == 0) {
          const auto text =
              error_of([&] { comm.exchange(std::vector<Transfer>{receive(1, four.tensor())}, stream); });
          EXPECT_CONTAINS(text, "300 ms");
          EXPECT_CONTAINS(text, "for rank 1 to send 4 f32");
        } else {
          std::this_thread::sleep_for(2 * kShort);  // the world must not end while rank 0 waits
        }
        linger(comm);
      },
      kShort);
}

TYPED_TEST_P(CommunicatorConformance, AbortWakesEveryoneAlsoInGroups) {
  this->run([](Communicator& comm) {
    if (comm.size() < 2) return;
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
        if (comm.rank() == 1)  // its group would go on, but it waits for rank 0
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

REGISTER_TYPED_TEST_SUITE_P(CommunicatorConformance, AllReduceOfEveryNumberType,
                            SumsOf16BitFloatsAreRoundedAfterEachAddition, SumsAreInRankOrderToTheLastBit,
                            ReduceScatterAlsoInPlace, AllGatherOfEveryTypeAlsoInPlace,
                            AllToAllUnevenWithEmptyRows, AllToAllWithNoRowsAtAll, BroadcastFromEveryRoot,
                            ExchangeInARing, ExchangeCrossedPairsInOrder, ExchangeCompletesInAnyOrder,
                            ExchangeNeedsOnlyTheRanksNamed, ExchangeWithItself, SplitByColorAndKey,
                            WorkerStreamOverlapsOtherCommunicators, ArgumentListsAreCopied,
                            DryStreamDoesNothing, MismatchIsTheSameErrorOnEveryRankAndTheWorldGoesOn,
                            MismatchedRowsOfAllToAll, MismatchedExchange, ReducingBytesIsRefused,
                            TimeoutNamesTheRanksThatDidNotCome, TimeoutOfAnExchangeNamesThePeer,
                            AbortWakesEveryoneAlsoInGroups);

}  // namespace trifold::test
