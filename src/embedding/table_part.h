// TablePart: the rectangle of an embedding table that a rank holds, with its optimizer's state, in memory
// that operations read.
//
// Initial values are uniform in +-1/sqrt(rows), or in a range that is given, keyed by (seed, table, row, column): the same in every
// placement, and with first-order weights (EmbeddingTable::weights), which begin as 0, behind them or not.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/writer.h"
#include "core/stream.h"
#include "embedding/placement.h"
#include "ops/ops.h"

namespace trifold {

// The name of its weights: "embedding.C1.weight".
std::string weight_name(const EmbeddingTable& table);

// Bytes of the rule's state for a row of `width` numbers.
size_t state_bytes_of_row(SparseKind kind, int64_t width, DType dtype);

class TablePart {
 public:
  struct Options {
    DType dtype = DType::F32;
    SparseKind optimizer = SparseKind::Sgd;
    bool training = true;  // otherwise there is no state
    uint64_t seed = 0;
    double init_range = 0;  // 0: 1 / sqrt(rows)
  };
  // `names_rows`: this part saves the state that belongs to whole rows. Values are generated on `stream`, on
  // the device of `ops`; copies to the device may still be in flight when this returns.
  TablePart(const OpTable& ops, const EmbeddingTable& table, const Rect& rect, bool names_rows,
            const Options& options, Stream& stream);

  const Rect& rect() const { return rect_; }
  Tensor values() const { return values_.tensor(options_.dtype, rect_.extent); }
  // The update of its rows by gradients that begin at `column`; the caller sets the order.
  RowUpdate update(int64_t column) const;

  // Lists values and state as boxes of global tensors: "param/embedding.<table>.weight", "adagrad_sum/...".
  void name_tensors(std::vector<NamedTensor>& tensors, bool to_load) const;

  size_t value_bytes() const { return values_.bytes(); }
  size_t state_bytes() const { return state_.bytes() + second_.bytes(); }

 private:
  void initialise(Stream& stream) const;
  void write_initial(int64_t first, Tensor rows, Stream& stream) const;
  Tensor state(const Buffer& buffer) const;

  const OpTable& ops_;
  EmbeddingTable table_;
  Rect rect_;
  bool names_rows_;
  Options options_;
  Buffer values_, state_, second_;
};

}  // namespace trifold
