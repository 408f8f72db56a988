// RowTransfer carries out the moves of a RowCache whose slots are in device memory.
//
// With a store in shared host memory the device copies rows directly, many per launch (OpTable::copy_rows). With a
// file, or without a store, rows pass through a staging area in shared memory, which the host reads and writes.
#pragma once

#include <span>
#include <vector>

#include "core/function_ref.h"
#include "embedding/stored/row_store.h"
#include "ops/ops.h"

namespace trifold {

class RowTransfer {
 public:
  // Rows initialised at a time in a table without a store.
  static constexpr int64_t kBegun = 256;

  // For arrays with elements of `dtype`; at most `batch_rows` moves in a call. `ops` and `store` must outlive this
  // object.
  RowTransfer(const OpTable& ops, const RowStore& store, const std::vector<RowArray>& arrays, DType dtype,
              int64_t rows, int64_t slots, int64_t batch_rows);
  // Bytes of shared memory in addition to the store; `row_bytes` is the sum over all arrays, `staged` whether there is
  // a staging area.
  static size_t shared_bytes(int64_t batch_rows, size_t row_bytes, bool staged);

  // Without a file: enqueues all moves on `stream`, which must have passed the moves of the previous call. Rows for
  // which stored(row) is false, all rows without a store, are initialised with `initial`; a shared store then holds
  // them, too.
  void carry_out(std::span<const RowMove> moves, FunctionRef<bool(int64_t row)> stored,
                 const InitialRow& initial, Stream& stream) const;

  // With a file, in this order. Copies the victims to the staging area, packed in the order of their moves, and waits.
  void fetch_victims(std::span<const RowMove> moves, Stream& stream) const;
  // Enqueues the copies of rows from the staging area, which the host has filled in the order of their moves.
  void send_rows(std::span<const RowMove> moves, Stream& stream) const;
  // Row `row` of the staging area of array `a`.
  std::byte* staged(size_t a, int64_t row) const {
    return static_cast<std::byte*>(views_[a].staged.rows(row, row + 1).data);
  }

 private:
  struct Views {
    Tensor slots, stored, staged;  // [rows, elements]; either stored or staged is set
  };
  Tensor list(int index, int64_t count) const;
  void check_count(std::span<const RowMove> moves) const;

  const OpTable& ops_;
  const RowStore& store_;
  std::vector<RowArray> arrays_;
  std::vector<Views> views_;  // one per array
  int64_t batch_rows_;
  Buffer shared_;  // the staging area, then four lists of batch_rows_ indices
};

}  // namespace trifold
