// Rows in memory and in a file: whatever comes and goes, every row has its last value.
#include "embedding/row_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "core/random.h"
#include "core/tensor.h"
#include "embedding/table_storage.h"

namespace trifold::test {
namespace {

constexpr int64_t kRows = 500;
constexpr int64_t kBatchRows = 20;

// Values [rows, 3] and state [rows]; row r begins as (r, r, r) and 0.
struct Table {
  explicit Table(int64_t slots)
      : file(std::filesystem::temp_directory_path().string(), 4 * sizeof(float) * kRows),
        values(static_cast<size_t>(slots) * 3 * sizeof(float)),
        state(static_cast<size_t>(slots) * sizeof(float)),
        cache(
            file,
            {{0, 3 * sizeof(float), values.data()}, {3 * sizeof(float) * kRows, sizeof(float), state.data()}},
            kRows, slots, kBatchRows, [](int64_t row, std::byte* to) {
              const std::vector<float> first(3, static_cast<float>(row));
              std::memcpy(to, first.data(), 3 * sizeof(float));
            }) {}
  float* values_of(int32_t slot) { return reinterpret_cast<float*>(values.data()) + 3 * slot; }
  float& state_of(int32_t slot) { return reinterpret_cast<float*>(state.data())[slot]; }

  FileMemory file;
  Buffer values, state;
  RowCache cache;
};

// Different rows, low ones more often.
std::vector<int32_t> rows_of_batch(int batch) {
  const PhiloxKey key = philox_key(3, "rows");
  std::vector<int32_t> rows;
  for (uint64_t i = 0; i < kBatchRows; ++i) {
    const double unit = philox_word(key, static_cast<uint64_t>(batch) * kBatchRows + i) / 4294967296.0;
    rows.push_back(static_cast<int32_t>(std::pow(unit, 3) * kRows));
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

TEST(RowCache, KeepsEveryValue) {
  for (const int64_t slots : {2 * kBatchRows, int64_t{150}, kRows - 1}) {
    SCOPED_TRACE(slots);
    Table table(slots);
    std::vector<float> expected(kRows);  // by how much each row was raised
    std::vector<int32_t> rows, here;     // of the batch in use, and where they are
    for (int batch = 0; batch < 300; ++batch) {
      const std::vector<int32_t> next = rows_of_batch(batch);
      const bool changes = batch % 5 != 4;
      std::vector<int32_t> next_here = next;
      table.cache.bring_in(next, changes);  // before the batch in use has changed its rows
      table.cache.translate(next_here);
      for (size_t i = 0; i < rows.size(); ++i) {
        const float raised = expected[static_cast<size_t>(rows[i])];
        EXPECT_EQ(table.values_of(here[i])[2], static_cast<float>(rows[i]) + raised);
        EXPECT_EQ(table.state_of(here[i]), raised);
        if (batch % 5 == 0) continue;  // the last one was only looked at
        for (int c = 0; c < 3; ++c) table.values_of(here[i])[c] += 1;
        table.state_of(here[i]) += 1;
        ++expected[static_cast<size_t>(rows[i])];
      }
      rows = next;
      here = next_here;
      if (batch != 150) continue;
      ThreadPool pool(2);
      table.cache.settle(pool);
    }
    ThreadPool pool(2);
    table.cache.settle(pool);
    const auto* values = reinterpret_cast<const float*>(table.file.data());
    for (size_t row = 0; row < kRows; ++row) {
      EXPECT_EQ(values[3 * row], static_cast<float>(row) + expected[row]);
      EXPECT_EQ(values[3 * kRows + row], expected[row]);
    }
  }
}

TEST(RowCache, ReadsWhatWasWrittenFromOutside) {
  Table table(2 * kBatchRows);
  table.cache.bring_in(rows_of_batch(0), true);
  auto* values = reinterpret_cast<float*>(table.file.data());
  std::iota(values, values + 4 * kRows, 1000.0F);
  table.cache.reload();
  for (int batch = 0; batch < 50; ++batch) {
    const std::vector<int32_t> rows = rows_of_batch(batch);
    std::vector<int32_t> here = rows;
    table.cache.bring_in(rows, false);
    table.cache.translate(here);
    for (size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(table.values_of(here[i])[1], 1001.0F + 3 * static_cast<float>(rows[i]));
      EXPECT_EQ(table.state_of(here[i]), 1000.0F + 3 * kRows + static_cast<float>(rows[i]));
    }
  }
}

TEST(RowCache, RowsMayBeListedTwice) {
  Table table(2 * kBatchRows);
  const std::vector<int32_t> rows{7, 9, 7, 7, 9};
  std::vector<int32_t> here = rows;
  table.cache.bring_in(rows, false);
  table.cache.translate(here);
  EXPECT_EQ(here[0], here[2]);
  EXPECT_EQ(here[0], here[3]);
  EXPECT_EQ(here[1], here[4]);
  EXPECT_NE(here[0], here[1]);
  EXPECT_EQ(table.values_of(here[4])[0], 9);
}

// Ten rows in every fourth batch, between others of which none comes again.
TEST(RowCache, RareRowsDoNotDisplaceFrequentOnes) {
  Table table(3 * kBatchRows);
  int32_t rare = 10;
  for (int batch = 0; batch < 40; ++batch) {
    std::vector<int32_t> rows;
    for (int32_t row = 0; row < 10; ++row)
      if (batch % 4 == 0) rows.push_back(row);
    for (int i = 0; i < 10; ++i) rows.push_back(rare++);
    table.cache.bring_in(rows, true);
  }
  const RowCache::Counts counts = table.cache.counts();
  EXPECT_EQ(counts.wanted, 400 + 10 * 10);
  EXPECT_EQ(counts.found, 9 * 10);  // missing only in the first batch
}

const std::vector<PartShape> kShapes{
    {1'000'000, 100, 64, 4}, {5'000'000, 1000, 64, 4}, {50, 100, 64, 4}, {3000, 100, 64, 4}};

TEST(TableStorage, ACacheIsDividedByIds) {
  for (const size_t cache : {size_t{2'000'000}, size_t{20'000'000}, size_t{200'000'000}}) {
    const std::vector<int64_t> slots = divide_cache(kShapes, {"folder", cache});
    size_t bytes = 0;
    for (size_t i = 0; i < slots.size(); ++i) bytes += bytes_of_part(kShapes[i], slots[i]).memory();
    EXPECT_LE(bytes, cache);
    EXPECT_GT(static_cast<double>(bytes), 0.99 * static_cast<double>(cache));
    EXPECT_NEAR(static_cast<double>(slots[1]) / static_cast<double>(slots[0]), 10, 0.01);
    EXPECT_EQ(slots[2], 50);
    EXPECT_EQ(bytes_of_part(kShapes[2], slots[2]).file, 0U);
    EXPECT_EQ(bytes_of_part(kShapes[0], slots[0]).file, 68'000'000U);
  }
}

TEST(TableStorage, ACacheForEverythingHasNoFiles) {
  const std::vector<int64_t> slots = divide_cache(kShapes, {"folder", size_t{1} << 40});
  for (size_t i = 0; i < slots.size(); ++i) EXPECT_EQ(slots[i], kShapes[i].rows);
}

TEST(TableStorage, TwoBatchesAreAlwaysInMemory) {
  const std::vector<int64_t> slots = divide_cache(kShapes, {"folder", 1});
  EXPECT_EQ(slots, (std::vector<int64_t>{200, 2000, 50, 200}));
  size_t bytes = 0;
  for (size_t i = 0; i < slots.size(); ++i) bytes += bytes_of_part(kShapes[i], slots[i]).memory();
  EXPECT_EQ(least_cache(kShapes), bytes);
}

}  // namespace
}  // namespace trifold::test
