// TablePart: the rectangle of an embedding table that a rank holds, with its optimizer's state.
//
// Initial values are uniform in +-1/sqrt(rows), or in a given range, keyed by (seed, table, row, column), so they are
// the same in every placement, with or without first-order weights (EmbeddingTable::weights), which are initially 0.
//
// The whole rectangle is in the memory of operations or, if the part is *cached*, in a store: a file, or host memory if
// operations have a device. A RowCache (row_cache.h) then brings the rows of a batch into the memory of operations, and
// the batch refers to slots. Checkpoint tensors are the whole store, in a file as StoredRows.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/writer.h"
#include "core/random.h"
#include "core/stream.h"
#include "embedding/lookup_batch.h"
#include "embedding/placement.h"
#include "embedding/stored/row_cache.h"
#include "embedding/table_storage.h"
#include "ops/ops.h"

namespace trifold {

// The name of a table's weights: "embedding.C1.weight".
std::string weight_name(const EmbeddingTable& table);

// Bytes of the optimizer's state for a row of `width` elements.
size_t state_bytes_of_row(SparseKind kind, int64_t width, DType dtype);

// The initial values of the rows of a rectangle of a table.
class InitialRows {
 public:
  // `range` as TablePart::Options::init_range.
  InitialRows(const EmbeddingTable& table, const Rect& rect, DType dtype, uint64_t seed, double range);
  // Writes the values of row `row` of the rectangle.
  void write(int64_t row, std::byte* to) const;

 private:
  template <class T>
  void write_as(int64_t row, T* to) const;

  PhiloxKey key_;
  double bound_;
  int64_t vector_;
  Rect rect_;
  DType dtype_;
};

class TablePart {
 public:
  struct Options {
    DType dtype = DType::F32;
    SparseKind optimizer = SparseKind::Sgd;
    bool training = true;  // false: no optimizer state
    uint64_t seed = 0;
    double init_range = 0;  // 0: 1 / sqrt(rows)
    TableStorage storage = {};
    int64_t slots = 0;              // with cached storage: rows in memory; if all rows, there is no store
    int64_t batch_ids = 0;          // maximum ids in a batch
    const RowDisk* disk = nullptr;  // with files
  };
  // `names_rows`: this part saves the state that belongs to whole rows. Values are generated on `stream`, on
  // the device of `ops`; copies to the device may still be in flight when this returns.
  TablePart(const OpTable& ops, const EmbeddingTable& table, const Rect& rect, bool names_rows,
            const Options& options, Stream& stream);

  const Rect& rect() const { return rect_; }
  const EmbeddingTable& table() const { return table_; }
  // The values of the rows in memory.
  Tensor values() const { return values_.tensor(options_.dtype, {memory_rows_, rect_.extent[1]}); }
  // The update of its rows by gradients that begin at `column`; the caller sets the order.
  RowUpdate update(int64_t column) const;

  // Initialises again the ones of the table's `rows` that are in this part: initial values, and a state of zero; see
  // RowCache::begin_anew. Only for keyed tables.
  void begin_rows(std::span<const int32_t> rows, Stream& stream);

  // Lists values and state as boxes of global tensors: "param/embedding.<table>.weight", "adagrad_sum/...".
  void name_tensors(std::vector<NamedTensor>& tensors, bool to_load) const;

  // Whether only some of its rows are in memory. If all are, the functions below do nothing.
  bool is_cached() const { return cache_ != nullptr; }
  // Bring the rows of a batch into memory and make its list refer to slots, like the functions of RowCache. `changes`:
  // the batch will change its rows, and they are numbered.
  void begin_bring_in(LookupBatch::Cached& list, bool changes, Stream& stream);
  void start_reads();
  void end_bring_in(LookupBatch::Cached& list, bool changes, Stream& stream);
  // Writes changed rows back to the store. Call it before reading the tensors of name_tensors. No step may be in
  // progress.
  void settle(Stream& stream);
  // Call it after the tensors of name_tensors were written; copies to a device are finished when it returns.
  void reload(Stream& stream);
  const RowFile* file() const { return store_ ? store_->file() : nullptr; }
  RowCache::Counts counts() const { return cache_ ? cache_->counts() : RowCache::Counts{}; }

  // Bytes of the part, by kind of memory.
  PartBytes bytes() const;

 private:
  void initialise(Stream& stream) const;
  void write_initial(int64_t first, Tensor rows, Stream& stream) const;
  // values_, state_ and second_ as they are in the store: whole arrays one after another or, in a file, parts of a
  // record.
  std::vector<RowArray> arrays() const;
  bool is_sum_of_squares(const Buffer& buffer) const;
  void make_store();
  void begin_on_device(std::span<const int32_t> rows, Stream& stream) const;
  Tensor state(const Buffer& buffer) const;
  Shape state_shape(int64_t rows) const;
  // The whole array whose cached rows are in `buffer`; without data if the store is a file.
  Tensor whole(const Buffer& buffer) const;

  const OpTable& ops_;
  EmbeddingTable table_;
  Rect rect_;
  bool names_rows_;
  Options options_;
  int64_t memory_rows_;
  InitialRows initial_;
  Buffer values_, state_, second_;
  std::unique_ptr<RowStore> store_;  // values, state and second of all rows
  std::unique_ptr<RowCache> cache_;
  std::optional<RowTransfer> begins_;  // for a keyed table that is not cached, on a device: initialises rows
};

}  // namespace trifold
