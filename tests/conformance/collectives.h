// Collectives: what they compute, to the last bit.
#pragma once

#include "conformance/communicator_support.h"

namespace trifold::test {

template <class Host>
class CollectiveConformance : public CommunicatorTest<Host> {};
TYPED_TEST_SUITE_P(CollectiveConformance);

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

TYPED_TEST_P(CollectiveConformance, AllReduceOfEveryNumberType) {
  this->run([](Communicator& comm) {
    all_reduce_clause<double>(comm);
    all_reduce_clause<float>(comm);
    all_reduce_clause<int64_t>(comm);
    all_reduce_clause<int32_t>(comm);
  });
}

// In 16 bits each addition is made in f32 and rounded.
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
    double largest = static_cast<double>(make(0, i));
    for (int r = 1; r < comm.size(); ++r) largest = std::max(largest, static_cast<double>(make(r, i)));
    ASSERT_TRUE(is_sum(comm, sums[i], i, make)) << "element " << i;
    ASSERT_EQ(static_cast<double>(most[i]), largest) << "element " << i;
    const size_t first = part * static_cast<size_t>(comm.rank());
    if (i >= first && i < first + part) {
      ASSERT_TRUE(is_sum(comm, scattered[i - first], i, make)) << "element " << i;
    }
  }
}

TYPED_TEST_P(CollectiveConformance, SumsOf16BitFloatsAreRoundedAfterEachAddition) {
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

TYPED_TEST_P(CollectiveConformance, SumsAreInRankOrderToTheLastBit) {
  this->run([](Communicator& comm) {
    if (comm.backend() == "nccl") GTEST_SKIP() << "NCCL adds in another order";
    ASSERT_TRUE(comm.sums_in_rank_order());
    rank_order_clause<float>(comm);
    rank_order_clause<double>(comm);
  });
}

TYPED_TEST_P(CollectiveConformance, ReduceScatterAlsoInPlace) {
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
          for (size_t i = 0; i < part; ++i) {
            const float got = out.as<float>()[i];
            if (how == Reduce::Sum) {
              ASSERT_TRUE(is_sum(comm, got, first + i, awkward<float>));
            } else {
              ASSERT_EQ(got, in_rank_order<float>(comm.size(), first + i, how, awkward<float>));
            }
          }
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

TYPED_TEST_P(CollectiveConformance, AllGatherOfEveryTypeAlsoInPlace) {
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

TYPED_TEST_P(CollectiveConformance, AllToAllUnevenWithEmptyRows) {
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

TYPED_TEST_P(CollectiveConformance, AllToAllWithNoRowsAtAll) {
  this->run([](Communicator& comm) {
    OwnStream stream;
    const std::vector<int64_t> none(static_cast<size_t>(comm.size()), 0);
    const Tensor empty{nullptr, DType::F32, {0, 7}};
    comm.all_to_all(empty, empty, none, none, stream);
    comm.barrier();
  });
}

TYPED_TEST_P(CollectiveConformance, BroadcastFromEveryRoot) {
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

REGISTER_TYPED_TEST_SUITE_P(CollectiveConformance, AllReduceOfEveryNumberType,
                            SumsOf16BitFloatsAreRoundedAfterEachAddition, SumsAreInRankOrderToTheLastBit,
                            ReduceScatterAlsoInPlace, AllGatherOfEveryTypeAlsoInPlace,
                            AllToAllUnevenWithEmptyRows, AllToAllWithNoRowsAtAll, BroadcastFromEveryRoot);

}  // namespace trifold::test
