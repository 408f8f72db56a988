// Rows in memory and in a file: whatever comes and goes, every row has its last value.
#include "embedding/stored/row_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "core/random.h"
#include "embedding/table_storage.h"
#include "unit/stored_table.h"

namespace trifold::test {
namespace {

constexpr int64_t kRows = StoredTable::kRows;
constexpr int64_t kBatchRows = StoredTable::kBatchRows;

using Table = StoredTable;

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
      // Before the batch in use has changed its rows.
      const std::vector<int32_t> next_here = table.bring_in(next, changes);
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
      table.cache.settle(table.stream);
    }
    table.cache.settle(table.stream);
    std::vector<float> values(3 * kRows), sums(kRows);
    table.cache.rows_of(0)->read(0, kRows, reinterpret_cast<std::byte*>(values.data()));
    table.cache.rows_of(1)->read(0, kRows, reinterpret_cast<std::byte*>(sums.data()));
    for (size_t row = 0; row < kRows; ++row) {
      EXPECT_EQ(values[3 * row], static_cast<float>(row) + expected[row]);
      EXPECT_EQ(sums[row], expected[row]);
    }
  }
}

// Of one array only some rows: the rest keeps what it was, in slots, on the way to the file or never used.
TEST(RowCache, ReadsWhatWasWrittenFromOutside) {
  Table table(2 * kBatchRows);
  std::vector<float> sums(kRows, 0);
  for (int batch = 0; batch < 20; ++batch) {
    const std::vector<int32_t> rows = rows_of_batch(batch), here = table.bring_in(rows, true);
    for (size_t i = 0; i < rows.size(); ++i)
      sums[static_cast<size_t>(rows[i])] = table.state_of(here[i]) += 1;
  }
  table.cache.settle(table.stream);
  std::vector<float> values(3 * (kRows - 100));
  std::iota(values.begin(), values.end(), 1000.0F);
  table.cache.rows_of(0)->write(100, kRows - 100, reinterpret_cast<const std::byte*>(values.data()));
  table.cache.reload(table.stream);
  for (int batch = 0; batch < 50; ++batch) {
    const std::vector<int32_t> rows = rows_of_batch(batch), here = table.bring_in(rows, false);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<float>(rows[i]);
      EXPECT_EQ(table.values_of(here[i])[1], rows[i] < 100 ? row : 1001 + 3 * (row - 100));
      EXPECT_EQ(table.state_of(here[i]), sums[static_cast<size_t>(rows[i])]);
    }
  }
}

// As a checkpoint is loaded: piece by piece, none of which begins at a page. The first rows of each were never written.
TEST(RowCache, PiecesOfALoadKeepTheirNeighbours) {
  constexpr int64_t kPieces = 5;
  std::array<int64_t, kPieces> order{};
  std::iota(order.begin(), order.end(), 0);
  for (const bool backwards : {false, true}) {
    SCOPED_TRACE(backwards);
    Table table(2 * kBatchRows);
    if (backwards) std::reverse(order.begin(), order.end());
    std::vector<float> values(3 * kRows), sums(kRows);
    std::iota(values.begin(), values.end(), 1000.0F);
    std::iota(sums.begin(), sums.end(), 7.0F);
    const auto first_of = [](int64_t piece) { return piece * kRows / kPieces; };
    for (const int64_t piece : order) {
      const int64_t first = first_of(piece), rows = first_of(piece + 1) - first;
      table.cache.rows_of(1)->write(first, rows, reinterpret_cast<const std::byte*>(sums.data() + first));
      table.cache.rows_of(0)->write(first, rows,
                                    reinterpret_cast<const std::byte*>(values.data() + 3 * first));
    }
    // A row that a block of a checkpoint cuts is written alone.
    values[3 * 17 + 2] = -1;
    table.cache.rows_of(0)->write(17, 1, reinterpret_cast<const std::byte*>(values.data() + size_t{3} * 17));
    std::vector<float> read_values(values.size()), read_sums(sums.size());
    table.cache.rows_of(0)->read(0, kRows, reinterpret_cast<std::byte*>(read_values.data()));
    table.cache.rows_of(1)->read(0, kRows, reinterpret_cast<std::byte*>(read_sums.data()));
    EXPECT_EQ(read_values, values);
    EXPECT_EQ(read_sums, sums);
  }
}

// Between two steps, when the next batch was brought in: in memory, in the file, and where they never were anywhere.
TEST(RowCache, RowsBeginAnew) {
  Table table(2 * kBatchRows);
  const auto raise = [&](const std::vector<int32_t>& here) {
    for (const int32_t slot : here) {
      table.values_of(slot)[2] += 5;
      table.state_of(slot) += 5;
    }
  };
  std::vector<int32_t> old(kBatchRows), other(kBatchRows), next(kBatchRows);
  std::iota(old.begin(), old.end(), 0);
  std::iota(other.begin(), other.end(), 100);
  raise(table.bring_in(old, true));
  raise(table.bring_in(other, true));
  std::iota(next.begin(), next.end(), 200);
  next[0] = 100;
  const std::vector<int32_t> here = table.bring_in(next, true);  // most of `old` go to the file
  table.cache.settle(table.stream);
  EXPECT_EQ(table.stored(100).first, 105) << "a save before the next step has the old values";
  EXPECT_EQ(table.stored(201).first, 201);
  for (const int32_t row : {0, 1, 5}) EXPECT_EQ(table.stored(row).first, row + 5);
  table.cache.begin_anew(std::vector<int32_t>{100, 201, 0, 5, 400}, table.stream);
  EXPECT_EQ(table.values_of(here[0])[2], 100);
  EXPECT_EQ(table.state_of(here[0]), 0);
  table.cache.settle(table.stream);
  for (const int32_t row : {100, 201, 0, 5, 400})
    EXPECT_EQ(table.stored(row), std::pair(static_cast<float>(row), 0.0F));
  EXPECT_EQ(table.stored(1), std::pair(6.0F, 5.0F));
}

TEST(RowCache, RowsMayBeListedTwice) {
  Table table(2 * kBatchRows);
  std::vector<int32_t> numbers(5), slots(5);
  RowCache::Numbered numbered{numbers, slots};
  const std::vector<int32_t> here = table.bring_in({7, 9, 7, 7, 9}, true, &numbered);
  EXPECT_EQ(numbers, (std::vector<int32_t>{0, 1, 0, 0, 1}));
  EXPECT_EQ(numbered.count, 2);
  EXPECT_EQ(slots[0], here[0]);
  EXPECT_EQ(slots[1], here[1]);
  EXPECT_EQ(here[0], here[2]);
  EXPECT_EQ(here[0], here[3]);
  EXPECT_EQ(here[1], here[4]);
  EXPECT_NE(here[0], here[1]);
  EXPECT_EQ(table.values_of(here[4])[0], 9);
  // Ranks without a cache sort by row.
  numbered.by_row = true;
  const std::vector<int32_t> again = table.bring_in({9, 40, 7, 9, 3}, true, &numbered);
  EXPECT_EQ(numbers, (std::vector<int32_t>{2, 3, 1, 2, 0}));
  EXPECT_EQ(numbered.count, 4);
  for (size_t i = 0; i < again.size(); ++i) EXPECT_EQ(slots[static_cast<size_t>(numbers[i])], again[i]) << i;
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
    table.bring_in(rows, true);
  }
  const RowCache::Counts counts = table.cache.counts();
  EXPECT_EQ(counts.wanted, 400 + 10 * 10);
  EXPECT_EQ(counts.found, 9 * 10);  // missing only in the first batch
}

// A row's vector and state are in one page, whatever they take, if that leaves little of it empty.
TEST(RowRecords, RowsLieInOnePage) {
  for (const size_t record : {size_t{4}, size_t{68}, size_t{136}, size_t{516}, size_t{1024}, size_t{4096}}) {
    const RowRecords layout(record);
    EXPECT_EQ(layout.most_pages(), 1) << record;
    for (int64_t row = 0; row < 5000; ++row) {
      ASSERT_EQ(layout.end_page(row) - layout.first_page(row), 1) << record << ", row " << row;
      ASSERT_GE(layout.begin(row + 1), layout.begin(row) + record);
    }
    EXPECT_LE(layout.pages(5000) * 4096 * 7, static_cast<int64_t>(5000 * record * 8) + 4096 * 7) << record;
  }
  EXPECT_EQ(RowRecords(68).of_page, 60);
  EXPECT_EQ(RowRecords(68).of_unit, 56);
  const RowRecords large(2052);  // one in a page would leave half of it empty
  EXPECT_EQ(large.pages(1000), 501);
  EXPECT_EQ(large.most_pages(), 2);
  for (const int64_t page : {1, 2, 77}) {
    EXPECT_GE(large.begin(large.first_row(page)), static_cast<size_t>(page) * 4096);
    EXPECT_LT(large.begin(large.first_row(page) - 1), static_cast<size_t>(page) * 4096);
  }
}

// 8000 rows in 32 pages. Each that is needed costs one page, whichever arrays it has; those that leave are written
// together, and one that did not change is not written.
TEST(RowCache, MovesFewPages) {
  constexpr int64_t kMany = 8000;
  Table table(3 * kBatchRows, kMany, 400);
  const PhiloxKey key = philox_key(5, "pages");
  std::vector<float> raised(kMany);
  int64_t used = 0;
  const auto pass = [&](bool changes) {
    for (int batch = 0; batch < 400; ++batch) {
      std::vector<int32_t> rows;
      for (uint64_t i = 0; i < kBatchRows; ++i)
        rows.push_back(static_cast<int32_t>(philox_word(key, used * kBatchRows + i) % kMany));
      ++used;
      std::sort(rows.begin(), rows.end());
      rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
      const std::vector<int32_t> here = table.bring_in(rows, changes);
      for (size_t i = 0; i < rows.size(); ++i) {
        float& expected = raised[static_cast<size_t>(rows[i])];
        ASSERT_EQ(table.state_of(here[i]), expected) << rows[i];
        if (changes) expected = ++table.state_of(here[i]);
      }
    }
  };
  pass(true);
  const RowFile::Counts& moved = table.store.file()->counts();
  EXPECT_GT(moved.put, 7000);
  EXPECT_LT(static_cast<double>(moved.log_pages + moved.merged_pages), 0.4 * static_cast<double>(moved.put));
  EXPECT_LE(table.queue.counts().read, table.cache.counts().wanted - table.cache.counts().found);
  const int64_t put = moved.put;
  pass(false);
  EXPECT_LE(moved.put, put + 3 * kBatchRows) << "only those that were changed before";
}

const std::vector<PartShape> kShapes{
    {1'000'000, 100, 64, 4}, {5'000'000, 1000, 64, 4}, {50, 100, 64, 4}, {3000, 100, 64, 4}};

const TableStorage kInFiles{"folder", 1};

TEST(TableStorage, ACacheIsDividedByIds) {
  for (const size_t cache : {size_t{2'000'000}, size_t{20'000'000}, size_t{200'000'000}}) {
    const std::vector<int64_t> slots = divide_cache(kShapes, {"folder", cache});
    size_t bytes = 0;
    for (size_t i = 0; i < slots.size(); ++i) bytes += bytes_of_part(kShapes[i], slots[i], kInFiles).memory();
    EXPECT_LE(bytes, cache);
    EXPECT_GT(static_cast<double>(bytes), 0.99 * static_cast<double>(cache));
    EXPECT_NEAR(static_cast<double>(slots[1]), 10 * static_cast<double>(slots[0]), 10);
    EXPECT_EQ(slots[2], 50);
    EXPECT_EQ(bytes_of_part(kShapes[2], slots[2], kInFiles).file, 0U);
    const size_t pages = (1'000'000 + 59) / 60;
    const size_t file = bytes_of_part(kShapes[0], slots[0], kInFiles).file;
    EXPECT_GT(file, pages * 4096);
    EXPECT_LT(static_cast<double>(file), 1.08 * static_cast<double>(pages * 4096)) << "the log";
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
  for (size_t i = 0; i < slots.size(); ++i) bytes += bytes_of_part(kShapes[i], slots[i], kInFiles).memory();
  EXPECT_EQ(least_cache(kShapes, kInFiles), bytes);
}

// Groups of tables get what they would have had in one.
TEST(TableStorage, GroupsShareACache) {
  const TableStorage storage{"folder", 20'000'000};
  const std::vector<int64_t> together = divide_cache(kShapes, storage);
  const std::vector<std::vector<PartShape>> groups{{kShapes[0], kShapes[2]}, {kShapes[1]}, {kShapes[3]}};
  const std::vector<size_t> caches = caches_of_groups(groups, storage);
  EXPECT_LE(caches[0] + caches[1] + caches[2], storage.cache);
  std::vector<int64_t> apart;
  for (size_t g = 0; g < groups.size(); ++g)
    for (const int64_t slots : divide_cache(groups[g], {"folder", caches[g]})) apart.push_back(slots);
  const std::vector<int64_t> expected{together[0], together[2], together[1], together[3]};
  for (size_t i = 0; i < apart.size(); ++i) EXPECT_NEAR(apart[i], expected[i], 1) << i;
}

// The host keeps whole tables and lists of moves, the device no bookkeeping.
TEST(TableStorage, RowsOnADeviceLeaveTheirTablesOnTheHost) {
  TableStorage storage{"", 2'000'000, true, true};
  const std::vector<int64_t> slots = divide_cache(kShapes, storage);
  const PartBytes bytes = bytes_of_part(kShapes[0], slots[0], storage);
  EXPECT_EQ(bytes.memory(), static_cast<size_t>(slots[0]) * 68);
  EXPECT_EQ(bytes.shared, 68'000'000U + 100 * 16);
  EXPECT_EQ(bytes.file, 0U);
  storage.folder = "folder";
  const PartBytes in_file = bytes_of_part(kShapes[0], slots[0], storage);
  EXPECT_EQ(in_file.shared, 100U * (16 + 68));
  EXPECT_GT(in_file.file, 68'000'000U);
}

}  // namespace
}  // namespace trifold::test
