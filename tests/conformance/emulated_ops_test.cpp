// The CUDA table's kernels on the processor, under the emulation of blocks and warps: every entry against the
// processor's table, and with the threads of a block in another order between barriers.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "conformance/op_table.h"
#include "conformance/race_report.h"
#include "core/error.h"
#include "core/random.h"
#include "cuda_emulation/emulated_ops.h"
#include "cuda_emulation/emulation.cuh"
#include "ops/contract.h"
#include "ops/cuda/kernels/kernels.h"
#include "ops/cuda/kernels/sort.cuh"
#include "support/sanitizer.h"

namespace trifold::conformance {
namespace {

std::vector<OpCase> all_cases() {
  std::vector<OpCase> cases = op_cases();
  for (OpCase& test : recommender_op_cases()) cases.push_back(std::move(test));
  return cases;
}

class EmulatedOps : public testing::TestWithParam<OpCase> {
 protected:
  void TearDown() override { cuda::set_thread_order(0); }
  ThreadPool pool_{1};
  Stream stream_{Stream::Mode::Inline, pool_};
};

TEST_P(EmulatedOps, AgreesWithTheProcessor) { check_case(GetParam(), cuda::emulated_ops(), stream_); }

// A missing barrier shows when the thread that should have waited runs first.
TEST_P(EmulatedOps, DoesNotDependOnWhichThreadIsFirst) {
  if (test::kSanitized) GTEST_SKIP() << "the same loads and stores in another order";
  std::vector<OpRun::Result> first;
  for (int order : {0, 1, 5}) {
    cuda::set_thread_order(order);
    OpRun run(cuda::emulated_ops(), stream_, DType::F32, DType::F32);
    GetParam().body(run);
    const auto got = run.results();
    if (order == 0) first = got;
    ASSERT_EQ(got.size(), first.size());
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(got[i].values, first[i].values) << "output " << i << " in order " << order;
  }
}

// Nothing is left to luck: two threads touch the same bytes and no barrier orders them. In 16 bits packs are
// moved in other pieces than in f32.
TEST_P(EmulatedOps, HasNoRaces) {
  if (!cuda::emulation::RaceCheck::is_available())
    GTEST_SKIP() << "kernels of builds with a sanitizer do not report accesses";
  for (const DType dtype : {DType::F32, DType::BF16}) {
    if (dtype == DType::BF16 && GetParam().wide_only) continue;
    const cuda::emulation::RaceCheck check;
    OpRun run(cuda::emulated_ops(), stream_, dtype, dtype);
    GetParam().body(run);
    EXPECT_EQ(report(check.races()), "") << "in " << name_of(dtype);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EmulatedOps, testing::ValuesIn(all_cases()),
                         [](const testing::TestParamInfo<OpCase>& one) {
                           std::string name = std::to_string(one.index) + "_";
                           for (char c : one.param.name) name += std::isalnum(c) != 0 ? c : '_';
                           return name;
                         });

// Lists of one, two and three digits at once, over several tiles; keys that are equal keep their order.
TEST(Sort, OrdersKeysOfOneToThreePassesAndKeepsEqualOnes) {
  for (const int most_bits : {5, 14, 27}) {
    std::vector<std::vector<uint64_t>> keys, spare;
    std::vector<cuda::SortList> lists;
    std::vector<int64_t> lengths;
    for (const auto& [count, bits] : {std::pair<size_t, int>{5000, most_bits}, {1, 3}, {2049, 5}}) {
      std::vector<uint64_t> list;
      for (size_t i = 0; i < count; ++i)
        list.push_back(
            (philox_word({static_cast<uint32_t>(bits), 1}, i) & ((uint64_t{1} << bits) - 1)) << 32 | i);
      keys.push_back(std::move(list));
      spare.emplace_back(count);
      lengths.push_back(static_cast<int64_t>(count));
    }
    for (size_t i = 0; i < keys.size(); ++i)
      lists.push_back({keys[i].data(), spare[i].data(), lengths[i], i == 0 ? most_bits : i == 1 ? 3 : 5, {}});
    std::vector<std::byte> scratch(cuda::sort_workspace(lengths), std::byte{0xff});
    std::vector<std::vector<uint64_t>> expected = keys;
    for (auto& list : expected)
      std::stable_sort(list.begin(), list.end(), [](uint64_t a, uint64_t b) { return a >> 32 < b >> 32; });
    cuda::sort_lists(nullptr, scratch.data(), lists);
    EXPECT_EQ(cuda::sorted_in_spare(cuda::sort_passes(lists)) ? spare : keys, expected) << most_bits;
  }
}

// The seed of a call of cuDNN's dropout: of the layer's key and the first sample and head, known at once or
// late.
TEST(DropoutSeed, IsOfTheKeyAndTheFirstElement) {
  const PhiloxKey key = philox_key(5, "attention");
  const cpu::DropRule rule{.active = true, .key_lo = key.lo, .key_hi = key.hi};
  const int64_t sample = 1000;
  for (const cpu::LateIndex& first : {cpu::LateIndex{12007}, cpu::LateIndex{7, &sample, 12}}) {
    int64_t seed[] = {-1, -1};
    cuda::dropout_seed(nullptr, seed, rule, first);
    const auto words = philox(key, 12007);
    EXPECT_EQ(seed[0], static_cast<int64_t>((uint64_t{words[0] >> 1} << 32) | words[1]));
    EXPECT_EQ(seed[1], 0);
  }
}

// What cuDNN leaves behind the lengths of samples: gradients of keys and values, the end of each row.
TEST(ClearBehind, ClearsTheEndsOfRowsBehindTheLengths) {
  constexpr int64_t kSeq = 5;
  constexpr int64_t kRow = 3200;    // bytes
  constexpr int64_t kFirst = 1024;  // the rest is more than a block's threads clear at once
  const std::vector<int32_t> lengths{5, 2, 1};
  std::vector<uint8_t> bytes(3 * kSeq * kRow, 7);
  cuda::clear_behind(nullptr, bytes.data(), lengths.data(), 3, kSeq, kRow, kFirst);
  for (int64_t row = 0; row < 3 * kSeq; ++row) {
    const bool behind = row % kSeq >= lengths[static_cast<size_t>(row / kSeq)];
    const auto begin = bytes.begin() + row * kRow;
    EXPECT_EQ(std::count(begin, begin + kFirst, 7), kFirst) << row;
    EXPECT_EQ(std::count(begin + kFirst, begin + kRow, behind ? 0 : 7), kRow - kFirst) << row;
  }
}

TEST(NormsInParts, HaveTheBitsOfTheWhole) {
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  for (const OpTable* ops : {&cuda::emulated_ops(), &cpu_ops()}) check_norms_in_parts(*ops, stream);
}

TEST(OpTableCases, CoverEveryEntry) { expect_every_entry_has_a_case(); }

// ---- calls that are refused ----

// Arguments that fit no operation: `dtype` for every tensor, each of another length.
struct WrongArguments {
  explicit WrongArguments(DType type) : dtype(type) {
    lookups[0].table = {nullptr, DType::F32, {3, 99}};
    updates[0].table = {nullptr, DType::F32, {3, 99}};
    updates[0].order = &order;
    copies[0].width = 99;
  }
  WrongArguments(const WrongArguments&) = delete;
  WrongArguments& operator=(const WrongArguments&) = delete;

  template <class Arg>
  std::decay_t<Arg> make() {
    using Value = std::decay_t<Arg>;
    if constexpr (std::is_same_v<Value, Tensor> || std::is_same_v<Value, Forms>)
      return Tensor{nullptr, dtype, {2, ++length}};
    else if constexpr (std::is_same_v<Value, Factor>)
      return 1.0;
    else if constexpr (std::is_same_v<Value, std::span<const BagLookup>>)
      return lookups;
    else if constexpr (std::is_same_v<Value, std::span<const LookupOrder>>)
      return {};
    else if constexpr (std::is_same_v<Value, std::span<const RowUpdate>>)
      return updates;
    else if constexpr (std::is_same_v<Value, std::span<const ColumnCopy>>)
      return copies;
    else if constexpr (std::is_same_v<Value, ActivationForm>)
      return ActivationKind::Gelu;
    else
      return Value{};
  }

  DType dtype;
  int64_t length = 0;  // of the last tensor
  LookupOrder order{};
  std::vector<BagLookup> lookups = std::vector<BagLookup>(1);
  std::vector<RowUpdate> updates = std::vector<RowUpdate>(1);
  std::vector<ColumnCopy> copies = std::vector<ColumnCopy>(1);
};

// What a table says of such a call; nothing where it takes it, for the stream is a dry one.
template <class... Args>
std::string refusal(const OpTable& ops, void (*OpTable::*entry)(Stream&, Args...), Stream& dry, DType dtype) {
  WrongArguments wrong(dtype);
  const std::tuple<std::decay_t<Args>...> arguments{wrong.make<Args>()...};
  try {
    std::apply([&](const auto&... each) { (ops.*entry)(dry, each...); }, arguments);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Contract, RejectsInTheSameWordsOnEveryBackEnd) {
  ThreadPool pool(1);
  Stream dry(Stream::Mode::Dry, pool);
  size_t number = 0;
  Operations::for_each([&](auto operation) {
    SCOPED_TRACE(fmt::format("operation {} of OpTable, counted from 1", ++number));
    bool is_refused = false;
    for (const DType dtype : {DType::U8, DType::F32}) {
      const std::string text = refusal(cpu_ops(), decltype(operation)::kEntry, dry, dtype);
      EXPECT_EQ(refusal(cuda::emulated_ops(), decltype(operation)::kEntry, dry, dtype), text);
      is_refused = is_refused || !text.empty();
    }
    EXPECT_TRUE(is_refused);
  });
}

// ---- the emulation itself ----

// The value of another warp's number that each thread of a block of two warps sees, with and without a barrier.
unsigned seen_across_warps(bool barrier) {
  unsigned seen = 0;
  unsigned left[64] = {};
  cuda::emulation::launch(dim3(1), dim3(64), [&] {
    left[threadIdx.x] = threadIdx.x + 1;
    if (barrier) __syncthreads();
    seen += left[63 - threadIdx.x] != 0 ? 1 : 0;
  });
  return seen;
}

TEST(Emulation, OnlyABarrierMakesWorkOfOtherThreadsVisible) {
  EXPECT_EQ(seen_across_warps(true), 64U);
  EXPECT_LT(seen_across_warps(false), 64U);
}

TEST(Emulation, LanesExchangeValues) {
  uint64_t sums[64] = {};
  unsigned same[64] = {};
  cuda::emulation::launch(dim3(1), dim3(64), [&] {
    double x = threadIdx.x;
    for (int d = 16; d > 0; d /= 2) x += __shfl_xor_sync(~0U, x, d);
    const unsigned below = __shfl_up_sync(~0U, threadIdx.x, 1);
    same[threadIdx.x] = __match_any_sync(~0U, threadIdx.x % 3);
    sums[threadIdx.x] = static_cast<uint64_t>(x) * 100 + below;
  });
  EXPECT_EQ(sums[5], 496U * 100 + 4);
  EXPECT_EQ(sums[32], (496U + 32 * 32) * 100 + 32);  // the lowest lane sees itself
  EXPECT_EQ(same[3], 0x49249249U);                   // lanes 0, 3, 6, ...
}

TEST(Emulation, AThreadThatMissesABarrierIsAnError) {
  EXPECT_THROW(cuda::emulation::launch(dim3(1), dim3(64),
                                       [] {
                                         if (threadIdx.x != 7) __syncthreads();
                                       }),
               Error);
}

}  // namespace
}  // namespace trifold::conformance
