// TablePart: the rectangle of an embedding table that a rank holds, with its optimizer's state, in memory
// that operations read.
//
// Initial values are uniform in +-1/sqrt(rows), or in a range that is given, keyed by (seed, table, row, column): the same in every
// placement, and with first-order weights (EmbeddingTable::weights), which begin as 0, behind them or not.
//
// The rectangle may be in a file, or on the host while operations have a device, with the rows that batches need in the
// memory of operations (row_cache.h). The tensors of operations are then those in memory, and a batch is made to refer to
// them; the tensors of a checkpoint are the whole store, from a file as StoredRows.
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

// The name of its weights: "embedding.C1.weight".
std::string weight_name(const EmbeddingTable& table);

// Bytes of the rule's state for a row of `width` numbers.
size_t state_bytes_of_row(SparseKind kind, int64_t width, DType dtype);

// The first values of the rows of a rectangle of a table.
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
    bool training = true;  // otherwise there is no state
    uint64_t seed = 0;
    double init_range = 0;  // 0: 1 / sqrt(rows)
    TableStorage storage = {};
    int64_t slots = 0;              // with cached storage: rows in memory; all of the rectangle's: no store
    int64_t batch_ids = 0;          // the most in a batch
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

  // Gives those of the table's `rows` that are here their initial values and a state of zero; see RowCache::begin_anew.
  // The table is keyed.
  void begin_rows(std::span<const int32_t> rows, Stream& stream);

  // Lists values and state as boxes of global tensors: "param/embedding.<table>.weight", "adagrad_sum/...".
  void name_tensors(std::vector<NamedTensor>& tensors, bool to_load) const;

  // Whether only some of its rows are in memory; the functions below do nothing if all are.
  bool is_cached() const { return cache_ != nullptr; }
  // Bring the rows of a batch into memory and make its list refer to them: as RowCache's. `changes`: the batch will
  // change them, and they are numbered.
  void begin_bring_in(LookupBatch::Cached& list, bool changes, Stream& stream);
  void start_reads();
  void end_bring_in(LookupBatch::Cached& list, bool changes, Stream& stream);
  // Makes the store complete; call it before the tensors of name_tensors are read. No step may be in progress.
  void settle(Stream& stream);
  // Call it after those tensors were written; copies to a device are finished when it returns.
  void reload(Stream& stream);
  const RowFile* file() const { return store_ ? store_->file() : nullptr; }
  RowCache::Counts counts() const { return cache_ ? cache_->counts() : RowCache::Counts{}; }

  // Bytes of the part, by kind of memory.
  PartBytes bytes() const;

 private:
  void initialise(Stream& stream) const;
  void write_initial(int64_t first, Tensor rows, Stream& stream) const;
  // Values, state and second as they are stored, one after the other; in a file, those of a row.
  std::vector<RowArray> arrays() const;
  bool is_sum_of_squares(const Buffer& buffer) const;
  void make_store();
  void begin_on_device(std::span<const int32_t> rows, Stream& stream) const;
  Tensor state(const Buffer& buffer) const;
  Shape state_shape(int64_t rows) const;
  // The array of all rows whose rows in memory are in `buffer`; without data if it is in a file.
  Tensor whole(const Buffer& buffer) const;

  const OpTable& ops_;
  EmbeddingTable table_;
  Rect rect_;
  bool names_rows_;
  Options options_;
  int64_t memory_rows_;
  InitialRows initial_;
  Buffer values_, state_, second_;
  std::unique_ptr<RowStore> store_;  // of values, state and second
  std::unique_ptr<RowCache> cache_;
  std::optional<RowTransfer> begins_;  // on a device, of a keyed table that is there as a whole
};

}  // namespace trifold
