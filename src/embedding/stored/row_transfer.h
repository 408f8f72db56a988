// RowTransfer carries out the moves of a RowCache whose slots are in the memory of a device.
//
// Rows in shared host memory are read and written by the device itself, many at once (OpTable::copy_rows). Rows in a
// file, or in no store at all, pass through a staging area in shared memory, which the host reads and writes.
#pragma once

#include <span>
#include <vector>

#include "core/function_ref.h"
#include "embedding/stored/row_store.h"
#include "ops/ops.h"

namespace trifold {

class RowTransfer {
 public:
  // Rows of a table without a store that are initialised at a time.
  static constexpr int64_t kBegun = 256;

  // For arrays of `dtype`; at most `batch_rows` moves at a time. References must outlive it.
  RowTransfer(const OpTable& ops, const RowStore& store, const std::vector<RowArray>& arrays, DType dtype,
              int64_t rows, int64_t slots, int64_t batch_rows);
  // Bytes of shared memory besides the store; `row_bytes` of all arrays together.
  static size_t shared_bytes(int64_t batch_rows, size_t row_bytes, bool staged);

  // Without a file. Enqueues all moves; `stream` must have passed those of the last call. `stored(row)`: whether the
  // store has the row; if not, it gets its initial value, `initial`. Afterwards a shared store has it.
  void carry_out(std::span<const RowMove> moves, FunctionRef<bool(int64_t row)> stored,
                 const InitialRow& initial, Stream& stream) const;

  // With a file, in this order. Victims, in the order of their moves: the staging area has them when this returns.
  void fetch_victims(std::span<const RowMove> moves, Stream& stream) const;
  // Enqueues the moves of rows from the staging area, which the host has filled, in the order of their moves.
  void send_rows(std::span<const RowMove> moves, Stream& stream) const;
  // A row of the staging area in array a.
  std::byte* staged(size_t a, int64_t row) const {
    return static_cast<std::byte*>(views_[a].staged.rows(row, row + 1).data);
  }

 private:
  struct Views {
    Tensor slots, stored, staged;  // [rows, numbers]; stored or staged
  };
  Tensor list(int index, int64_t count) const;
  void check_count(std::span<const RowMove> moves) const;

  const OpTable& ops_;
  const RowStore& store_;
  std::vector<RowArray> arrays_;
  std::vector<Views> views_;  // of each array
  int64_t batch_rows_;
  Buffer shared_;  // four lists of batch_rows_ numbers, and the staging area
};

}  // namespace trifold
