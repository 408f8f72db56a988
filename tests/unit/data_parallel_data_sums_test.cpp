#include "data_parallel/data_sums.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/ranks.h"

namespace trifold::test {
namespace {

// To nearest even of 8 bits, by arithmetic.
float rounded(float value) {
  if (value == 0) return value;
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(value, 8 - exponent)), exponent - 8);
}

float contribution(int rank, int64_t element) {
  const auto turn = static_cast<double>(rank * 1000 + element);
  return static_cast<float>(std::sin(turn) * std::exp2(static_cast<double>(element % 13)));
}

float expected(int ranks, int64_t element) {
  float sum = 0;
  for (int r = 0; r < ranks; ++r) sum += rounded(contribution(r, element));
  return rounded(sum);
}

struct Bench {
  Bench(int ranks, int64_t count)
      : memory(static_cast<size_t>(count) * 4),
        work(static_cast<size_t>(DataSums::work_elements(count, ranks)) * 2),
        tensor(memory.tensor(DType::F32, {count})),
        sums(cpu_ops(), work.tensor(DType::BF16, {DataSums::work_elements(count, ranks)})) {}

  void contribute(int rank) {
    for (int64_t i = 0; i < tensor.elements(); ++i) tensor.as<float>()[i] = contribution(rank, i);
  }

  Buffer memory, work;
  Tensor tensor;
  DataSums sums;
  OwnStream stream;
};

// Counts that the ranks do and do not divide; each contribution is rounded, the sum is, and nothing else.
TEST(DataSums, RoundContributionsAndTheSum) {
  for (const int ranks : {2, 3, 4})
    for (const int64_t count : {256, 1536}) {
      SCOPED_TRACE(count * 10 + ranks);
      run_ranks(ranks, [&](Communicator& world) {
        Bench bench(ranks, count);
        bench.contribute(world.rank());
        bench.sums.all_reduce(world, bench.tensor, bench.stream);
        for (int64_t i = 0; i < count; ++i)
          ASSERT_EQ(bench.tensor.as<float>()[i], expected(ranks, i)) << "element " << i;
        const int64_t filled = (count + ranks - 1) / ranks * ranks;
        EXPECT_EQ(world.bytes_sent(), 2 * filled * 2 * (ranks - 1) / ranks);
      });
    }
}

// A part is the part of the whole, wherever it is put: apart, or in its place.
TEST(DataSums, GivePartsTheBitsOfTheWhole) {
  constexpr int kRanks = 3;
  constexpr int64_t kPart = 256;
  for (const bool in_place : {false, true})
    run_ranks(kRanks, [&](Communicator& world) {
      Bench bench(kRanks, kRanks * kPart);
      bench.contribute(world.rank());
      const Buffer apart(kPart * 4);
      const int64_t first = world.rank() * kPart;
      const Tensor part =
          in_place ? bench.tensor.rows(first, first + kPart) : apart.tensor(DType::F32, {kPart});
      bench.sums.reduce_scatter(world, part, bench.tensor, bench.stream);
      for (int64_t i = 0; i < kPart; ++i) ASSERT_EQ(part.as<float>()[i], expected(kRanks, first + i));
      bench.sums.all_gather(world, bench.tensor, part, bench.stream);
      for (int64_t i = 0; i < kRanks * kPart; ++i)
        ASSERT_EQ(bench.tensor.as<float>()[i], expected(kRanks, i)) << "element " << i;
      EXPECT_EQ(world.bytes_sent(), 2 * kPart * 2 * (kRanks - 1));
    });
}

TEST(DataSums, RejectBuffersLargerThanTheWorkspace) {
  run_ranks(2, [&](Communicator& world) {
    Bench bench(2, 256);
    const Buffer larger(512 * 4);
    EXPECT_THROW(bench.sums.all_reduce(world, larger.tensor(DType::F32, {512}), bench.stream), Error);
  });
}

}  // namespace
}  // namespace trifold::test
