// Attention over context ranks in all its ways, with exchanges on a thread of their own: what one rank computes.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "data/read_ahead.h"
#include "nn/context/attention_core.h"
#include "nn/shapes_only.h"
#include "support/compare.h"
#include "support/ranks.h"

namespace trifold::test {
namespace {

using Numbers = std::vector<double>;

struct ContextCase {
  const char* name;
  int ranks;
  ContextExchange exchange;
  int64_t kv_heads = 2;
  double dropout = 0;
  bool documents = false;
  bool padded = false;  // positions see all others but the padding of the second sample
  int threads = 1;
  int64_t left = -1, right = -1;  // a window
  RowCut cut() const { return padded ? RowCut::Consecutive : RowCut::BothEnds; }
};

constexpr int64_t kSamples = 2, kPositions = 48, kHeads = 4, kWidth = 8, kQueries = kHeads * kWidth;
constexpr uint64_t kSeed = 17;

Numbers random_numbers(int64_t count, const char* name) {
  Numbers numbers(static_cast<size_t>(count));
  const PhiloxKey key = philox_key(1, name);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = philox_normal(key, i);
  return numbers;
}

// The rows of a rank, of all samples.
Numbers cut_numbers(const Numbers& all, const SequenceRows& rows, int64_t columns) {
  Numbers mine;
  for (int64_t sample = 0; sample < kSamples; ++sample)
    for (const RowRun& run : rows.runs()) {
      const auto begin = all.begin() + (sample * kPositions + run.begin) * columns;
      mine.insert(mine.end(), begin, begin + run.count * columns);
    }
  return mine;
}

struct Result {
  Numbers out, dqkv;
};

// Forward and backward of one rank's rows.
Result attend(Communicator& world, const ContextCase& c) {
  const Mesh mesh(world, {{Axis::Cp, world.size()}});
  const int64_t columns = kQueries + 2 * c.kv_heads * kWidth;
  ParamList params;
  ReportList reports;
  BlockBuilder builder(params, reports, mesh, 0, kSeed);
  const AttentionCore core(builder, "attention", {mesh, "attention", kHeads, c.kv_heads, kWidth}, c.dropout,
                           {.sight = c.padded ? AttentionSight::Both : AttentionSight::Causal,
                            .left = c.left,
                            .right = c.right,
                            .soft_cap = c.left < 0 ? 0 : 2.0},
                           {c.exchange, c.threads});
  BatchBuffer buffer(kSamples, kPositions);
  Batch batch = buffer.batch();
  batch.first_sample = 5;
  for (int64_t i = 0; i < kSamples * kPositions; ++i)
    batch.positions.as<int32_t>()[i] = static_cast<int32_t>(i % kPositions);
  std::vector<int32_t> begins;
  for (int64_t i = 0; i < kSamples * kPositions; ++i)
    begins.push_back(static_cast<int32_t>(i % kPositions < 13 ? 0 : i % kPositions < 15 ? 13 : 15));
  if (c.documents) batch.document_begin = {begins.data(), DType::I32, {kSamples, kPositions}};
  std::vector<int32_t> lengths{static_cast<int32_t>(kPositions), 5};
  if (c.padded) batch.lengths = {lengths.data(), DType::I32, {kSamples}};
  const SequenceRows rows = rows_here(c.cut(), kPositions, mesh.sizes(), mesh.coords());
  cut_rows(batch, rows);
  Numbers qkv = cut_numbers(random_numbers(kSamples * kPositions * columns, "qkv"), rows, columns);
  Numbers dout = cut_numbers(random_numbers(kSamples * kPositions * kQueries, "dout"), rows, kQueries);
  const auto tensor = [&](Numbers& numbers, int64_t width) {
    return Tensor{numbers.data(), DType::F64, {static_cast<int64_t>(numbers.size()) / width, width}};
  };

  ShapesOnly sources(params, DType::F64);
  OwnStream stream;
  OwnStream side(Stream::Mode::Worker);
  Arena keep(size_t{1} << 20), flow(size_t{1} << 20), scratch(size_t{1} << 20);
  std::array<double, 2> losses{};
  const Tensor sum{losses.data(), DType::F64, {1}};
  Run run{stream.get(), side.get(), cpu_ops(),  mesh, sources, nullptr, &keep, &flow,
          scratch,      &batch,     DType::F64, true, kSeed,   1.0,     sum,   sum};
  Saved saved(builder.slots());
  const Tensor out = core.forward(run, tensor(qkv, columns), saved);
  const Tensor dqkv = core.backward_input(run, tensor(dout, kQueries), saved);
  EXPECT_EQ(scratch.used(), 0U) << "temporaries were left";
  const auto numbers = [](const Tensor& t) { return Numbers(t.as<double>(), t.as<double>() + t.elements()); };
  return {numbers(out), numbers(dqkv)};
}

class ContextAttention : public ::testing::TestWithParam<ContextCase> {};

TEST_P(ContextAttention, IsThatOfOneRank) {
  const ContextCase& c = GetParam();
  Result whole;
  run_ranks(1, [&](Communicator& world) { whole = attend(world, c); });
  std::vector<Result> parts(static_cast<size_t>(c.ranks));
  run_ranks(c.ranks,
            [&](Communicator& world) { parts[static_cast<size_t>(world.rank())] = attend(world, c); });
  for (int rank = 0; rank < c.ranks; ++rank) {
    const SequenceRows rows = SequenceRows::cut(c.cut(), kPositions, rank, c.ranks);
    const Result& part = parts[static_cast<size_t>(rank)];
    EXPECT_LT(relative_error(part.out, cut_numbers(whole.out, rows, kQueries)), 1e-12) << rank;
    EXPECT_LT(relative_error(part.dqkv, cut_numbers(whole.dqkv, rows, kQueries + 2 * c.kv_heads * kWidth)),
              1e-12)
        << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ways, ContextAttention,
    ::testing::Values(
        ContextCase{"GatheredKeys", 2, ContextExchange::AllGather, 2, 0.2, true},
        ContextCase{"GatheredOneByOne", 3, ContextExchange::AllGather, 4, 0.2, true},
        ContextCase{"GatheredUnevenly", 2, ContextExchange::AllGather, 4, 0, false, false, 3},
        ContextCase{"GatheredAtOnce", 4, ContextExchange::AllGather, 4, 0.2, true, false, 8},
        ContextCase{"ExchangedHeads", 2, ContextExchange::AllToAll, 2, 0.2, true},
        ContextCase{"OneKeyHeadOnAll", 4, ContextExchange::AllToAll, 1, 0.2, true},
        ContextCase{"KeyHeadsOnTwoEach", 4, ContextExchange::AllToAll, 2, 0.2, true},
        ContextCase{"ExchangedHeadsOfBert", 4, ContextExchange::AllToAll, 4, 0.2, false, true},
        ContextCase{"RingOf2", 2, ContextExchange::Ring, 4, 0, false},
        ContextCase{"RingOf3", 3, ContextExchange::Ring, 1, 0.2, false},
        ContextCase{"RingOf4", 4, ContextExchange::Ring, 2, 0.2, true},
        ContextCase{"RingOf8", 8, ContextExchange::Ring, 4, 0.2, true},
        ContextCase{"GatheredKeysOfBert", 3, ContextExchange::AllGather, 4, 0.2, false, true},
        ContextCase{"RingOf2OfBert", 2, ContextExchange::Ring, 4, 0, false, true},
        ContextCase{"RingOf4OfBert", 4, ContextExchange::Ring, 4, 0.2, false, true},
        ContextCase{"RingOf8OfBert", 8, ContextExchange::Ring, 4, 0.2, false, true},
        ContextCase{"GatheredWindow", 3, ContextExchange::AllGather, 2, 0.2, true, false, 1, 7},
        ContextCase{"ExchangedWindow", 2, ContextExchange::AllToAll, 2, 0.2, true, false, 1, 7},
        ContextCase{"RingWindow", 4, ContextExchange::Ring, 2, 0.2, false, false, 1, 3},
        ContextCase{"RingWindowOfBert", 4, ContextExchange::Ring, 4, 0.2, false, true, 1, 5, 5},
        ContextCase{"RingWindowBeforeOfBert", 4, ContextExchange::Ring, 4, 0, false, true, 1, 17, 0},
        ContextCase{"GatheredWindowBehindOfBert", 4, ContextExchange::AllGather, 4, 0, false, true, 1, 0, 9}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace trifold::test
