// Rows of a table in a file after a load: those that were never used are not read, those that were used most are in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "unit/stored_table.h"

namespace trifold::test {
namespace {

constexpr int64_t kStored = 40'000;  // rows, in 157 pages
constexpr int64_t kBatch = StoredTable::kBatchRows;

// What a checkpoint has; rows begin as in StoredTable.
struct Checkpoint {
  Checkpoint() : values(3 * kStored), sums(kStored) {
    for (int64_t row = 0; row < kStored; ++row)
      std::fill_n(values.data() + 3 * row, 3, static_cast<float>(row));
  }
  void train(int64_t row, float sum) {
    values[static_cast<size_t>(3 * row + 1)] -= 0.5F;
    sums[static_cast<size_t>(row)] = sum;
  }
  // In pieces that begin in the middle of pages, the sums first or last.
  void load(StoredTable& table, bool sums_first) const {
    constexpr int64_t kPiece = 7001;
    for (const bool of_sums : {sums_first, !sums_first})
      for (int64_t first = 0; first < kStored; first += kPiece) {
        const int64_t rows = std::min(kPiece, kStored - first);
        const float* const from = of_sums ? sums.data() + first : values.data() + 3 * first;
        table.cache.rows_of(of_sums ? 1 : 0)->write(first, rows, reinterpret_cast<const std::byte*>(from));
      }
    table.cache.reload(table.stream);
  }
  void expect_row(StoredTable& table, int32_t row, int32_t slot) const {
    const auto at = static_cast<size_t>(row);
    EXPECT_TRUE(std::equal(table.values_of(slot), table.values_of(slot) + 3, values.data() + 3 * at)) << row;
    EXPECT_EQ(table.state_of(slot), sums[at]) << row;
  }

  std::vector<float> values, sums;
};

std::vector<int32_t> rows_from(int32_t first, int32_t distance) {
  std::vector<int32_t> rows(kBatch);
  for (int32_t& row : rows) row = std::exchange(first, first + distance);
  return rows;
}

TEST(RowLoad, RowsThatWereNeverUsedAreNotRead) {
  for (const bool sums_first : {true, false}) {
    SCOPED_TRACE(sums_first);
    StoredTable table(2 * kBatch, kStored);
    Checkpoint saved;
    for (int64_t row = 0; row < kStored; row += 10) saved.train(row, 1);
    saved.sums[13] = 2;                     // only its sum changed
    saved.values[size_t{3} * 17 + 2] = -1;  // only a value
    saved.load(table, sums_first);
    const auto expect_read = [&](const std::vector<int32_t>& rows, int64_t read) {
      const int64_t before = table.cache.counts().read;
      const std::vector<int32_t> here = table.bring_in(rows, false);
      for (size_t i = 0; i < rows.size(); ++i) saved.expect_row(table, rows[i], here[i]);
      EXPECT_EQ(table.cache.counts().read - before, read);
    };
    expect_read(rows_from(20'001, 7 * 10), 0);
    expect_read(rows_from(30'001, 10), 0);
    expect_read(rows_from(35'000, 10), kBatch);
    expect_read({13, 14, 17, 18}, 2);
    for (const int64_t row : {12, 13, 17, 20, 39'999})
      EXPECT_EQ(table.stored(row), std::pair(saved.values[static_cast<size_t>(3 * row + 2)],
                                             saved.sums[static_cast<size_t>(row)]));
  }
}

TEST(RowLoad, RowsThatWereUsedMostAreInMemory) {
  constexpr int64_t kSlots = 4000;
  StoredTable table(kSlots, kStored);
  Checkpoint saved;
  // Row 7 i modulo the rows was used the i-th most.
  const auto row_at = [](int64_t rank) { return static_cast<int32_t>(rank * 7 % kStored); };
  for (int64_t rank = 0; rank < kStored; ++rank)
    saved.train(row_at(rank), 1000 / static_cast<float>(rank + 1));
  saved.load(table, false);
  const auto found = [&](int64_t first) {
    const int64_t before = table.cache.counts().found;
    std::vector<int32_t> rows;
    for (int64_t rank = first; rank < first + kBatch; ++rank) rows.push_back(row_at(rank));
    const std::vector<int32_t> here = table.bring_in(rows, true);
    for (size_t i = 0; i < rows.size(); ++i) saved.expect_row(table, rows[i], here[i]);
    return table.cache.counts().found - before;
  };
  for (const int64_t first : {int64_t{0}, kSlots / 2, kSlots * 9 / 10})
    EXPECT_EQ(found(first), kBatch) << first;
  EXPECT_EQ(found(kSlots * 11 / 10), 0);
  // As many others come as there are slots: those that were used most outlast them.
  for (int64_t first = 2 * kSlots; first < 3 * kSlots; first += kBatch) found(first);
  EXPECT_EQ(found(kBatch), kBatch);
  EXPECT_EQ(found(kSlots * 8 / 10), 0);
}

}  // namespace
}  // namespace trifold::test
