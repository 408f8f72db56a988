// A table in a file, with a cache of its rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "embedding/stored/row_cache.h"
#include "ops/ops.h"

namespace trifold::test {

// Values [rows, 3] and state [rows]; row r begins as (r, r, r) and 0.
struct StoredTable {
  static constexpr int64_t kRows = 500;
  static constexpr int64_t kBatchRows = 20;

  explicit StoredTable(int64_t slots, int64_t rows = kRows, int64_t waiting = 0)
      : store(MemoryFolder{std::filesystem::temp_directory_path().string()}, rows, layout, waiting),
        values(static_cast<size_t>(slots) * 3 * sizeof(float)),
        state(static_cast<size_t>(slots) * sizeof(float)),
        cache(
            cpu_ops(), store,
            {{0, 3 * sizeof(float), values.data()}, {3 * sizeof(float), sizeof(float), state.data(), true}},
            DType::F32, rows, slots, kBatchRows,
            [](int64_t row, std::byte* to) {
              const std::vector<float> first(3, static_cast<float>(row));
              std::memcpy(to, first.data(), 3 * sizeof(float));
            },
            &disk) {}
  // The slots of the rows.
  std::vector<int32_t> bring_in(std::vector<int32_t> rows, bool changes,
                                RowCache::Numbered* numbered = nullptr) {
    cache.begin_bring_in(rows, changes, stream);
    queue.finish();
    cache.start_reads();
    queue.finish();
    cache.end_bring_in(rows, numbered, stream);
    return rows;
  }
  float* values_of(int32_t slot) { return reinterpret_cast<float*>(values.data()) + 3 * slot; }
  float& state_of(int32_t slot) { return reinterpret_cast<float*>(state.data())[slot]; }
  // The last value and the state of a row, as a checkpoint sees them when the table is settled.
  std::pair<float, float> stored(int64_t row) {
    std::array<float, 3> vector{};
    float sum = 0;
    cache.rows_of(0)->read(row, 1, reinterpret_cast<std::byte*>(vector.data()));
    cache.rows_of(1)->read(row, 1, reinterpret_cast<std::byte*>(&sum));
    return {vector[2], sum};
  }

  ThreadPool pool{2};
  Stream stream{Stream::Mode::Inline, pool};
  RowRecords layout{4 * sizeof(float)};
  PageQueue queue{1};
  RowMerger merger{{&layout, 1}};
  RowDisk disk{queue, merger};
  RowStore store;
  Buffer values, state;
  RowCache cache;
};

}  // namespace trifold::test
