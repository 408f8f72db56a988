// EmbeddingTables: the embedding tables of a model, spread over ranks, with their optimizer's state; and the
// two exchanges of a step. b = samples of this rank, B = ranks * b of the global batch, D = width of vectors,
// `features` [b, (F + 1) D] as in models/dlrm.h, or [b, F D] without a bottom MLP: the vector of table t is
// in D columns from Placement::feature_column on.
//
//   forward   every rank looks up its shards for the whole global batch: one row [W] a sample, where W are
//             the columns of its shards; all to all, and rank r has b W_s numbers from each rank s. Parts of
//             rows are added up in the order of the ranks. Bags that are averaged are multiplied by
//             1 / length here.
//   backward  the same way back: the gradients of b samples go to every rank that made a part of them, and
//             come together as [B, W] in the order of the samples. Then each touched row is updated once,
//             with the sum over the global batch. Gradients are of the loss's mean over the global batch, on
//             any number of ranks.
//
// On one rank nothing travels and nothing is copied (vector_exchange.h). Gradients of replicated tables are
// added up over the ranks (table_copies.h).
//
// All of it is on the device of the table of operations, where that has one. What a step waits for is on
// streams alone: how much travels follows from the placement, and no number of the device is asked for.
//
// Row-wise Adagrad of a table whose columns are on several ranks adds up the squares of its rows over the
// ranks first.
#pragma once

#include <optional>
#include <vector>

#include "embedding/id_exchange.h"
#include "embedding/table_copies.h"
#include "embedding/table_part.h"
#include "embedding/vector_exchange.h"

namespace trifold {

class EmbeddingTables {
 public:
  struct Options {
    int64_t samples = 0;  // b
    DType dtype = DType::F32;
    SparseKind optimizer = SparseKind::Sgd;
    bool mean = false;  // bags are averaged instead of summed
    bool bf16_exchange = false;
    bool training = true;  // without, there is no state and no backward
    uint64_t seed = 0;
    StepMarks marks;  // called for Vectors and Gradients
  };
  // `comm` is this object's own; its work goes to `comm_stream`, computation to `compute`, both on the device
  // of `ops`. References must outlive the tables.
  EmbeddingTables(const Placement& placement, Communicator& comm, const OpTable& ops, const Options& options,
                  Stream& compute, Stream& comm_stream);
  ~EmbeddingTables();
  EmbeddingTables(const EmbeddingTables&) = delete;
  EmbeddingTables& operator=(const EmbeddingTables&) = delete;

  // Gives the lookups of a new batch (IdExchange::make_batch) their tables.
  void connect(LookupBatch& batch) const;

  // Looks up and sends. Until `finish_forward` features belong to this object, but for the bottom MLP's
  // columns.
  void forward(const LookupBatch& batch, Tensor features);
  void finish_forward(const LookupBatch& batch, Tensor features);
  // Sends the gradients of the features [b, (F + 1) D]. Scales them where bags are averaged.
  void backward(const LookupBatch& batch, Tensor dfeatures);
  // Receives them and updates all touched rows; `rule.kind` must be that of the construction. `dfeatures` as
  // in backward.
  void update(const LookupBatch& batch, Tensor dfeatures, const SparseRule& rule);

  // Values and state, where they live, as boxes of global tensors: "param/embedding.<table>.weight",
  // "adagrad_sum/...". To save, each box is named by one rank; to load, by all that hold it.
  std::vector<NamedTensor> checkpoint_tensors(bool to_load) const;

  // What this rank holds and others hold too: replicated tables with their state, and the sums of whole rows
  // of which several ranks hold columns each. `copies` of all ranks, of which one is the first.
  struct Copy {
    NamedTensor tensor;
    int copies = 1;
    bool is_first = true;
  };
  std::vector<Copy> copies() const;

  // Bytes of tables, of state and of what exchanges and updates need here.
  struct Memory {
    size_t tables = 0, state = 0, buffers = 0;
  };
  Memory memory() const;
  // The same of any rank of a placement, before there is one.
  static Memory memory(const Placement& placement, int rank, const Options& options);
  // Bytes that updates take of a device's work space for the largest batch, taken at construction: cudaMalloc
  // in the middle of training would wait for all that is under way.
  static size_t update_workspace(const Placement& placement, int rank, const Options& options);
  int64_t bytes_sent() const { return comm_.bytes_sent(); }

 private:
  static VectorExchange::Options exchange_options(const Options& options);
  int parts_of_rows(const Shard& shard) const;
  void add_part(int table, const Rect& rect, bool names_rows);
  void add_squares(const LookupBatch& batch, Tensor gradients, double grad_scale);

  const Placement& placement_;
  Communicator& comm_;
  const OpTable& ops_;
  Options options_;
  Stream& compute_;
  Stream& comm_stream_;
  std::vector<TablePart> parts_;  // in the order of LookupBatch
  size_t shards_ = 0;             // parts that are shards; the rest are copies
  std::vector<RowUpdate> updates_;
  std::vector<ColumnCopy> mean_;
  // Of several ranks:
  std::optional<VectorExchange> exchange_;
  std::optional<TableCopies> copies_;
  Buffer squares_;
  std::vector<int64_t> squares_at_;  // of each shard; -1 where its columns are whole
};

}  // namespace trifold
