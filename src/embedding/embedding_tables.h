// EmbeddingTables: the embedding tables of a model, spread over ranks, with their optimizer's state; and the
// two exchanges of a step. b = samples of this rank, B = ranks * b of the global batch, D = width of vectors,
// `features` [b, (F + 1) D] as in models/dlrm.h: the vector of table t is in columns [(t + 1) D, (t + 2) D).
//
//   forward   every rank looks up its shards for the whole global batch: one row [W] a sample, where W are
//   the
//             columns of its shards; all to all, and rank r has b W_s numbers from each rank s. Parts of rows
//             are added up in the order of the ranks. Bags that are averaged are multiplied by 1 / length
//             here.
//   backward  the same way back: the gradients of b samples go to every rank that made a part of them, and
//             come together as [B, W] in the order of the samples. Then each touched row is updated once,
//             with the sum over the global batch. Gradients are of the loss's mean over the global batch, on
//             any number of ranks.
//
// So each way b (sum of W_s over the other ranks) numbers come to a rank, and (B - b) W leave it; with
// `bf16_exchange` they travel as bf16, rounded once. On one rank nothing travels and nothing is copied.
//
// All of it is on the device of the table of operations, where that has one. What a step waits for is on
// streams alone: how much travels follows from the placement, and no number of the device is asked for.
//
// Initial values are uniform in +-1/sqrt(rows), keyed by (seed, table, row, column): the same in every
// placement. Row-wise Adagrad of a table whose columns are on several ranks adds up the squares of its rows
// over the ranks first.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/writer.h"
#include "embedding/id_exchange.h"
#include "embedding/step_marks.h"

namespace trifold {

class EmbeddingTables {
 public:
  struct How {
    int64_t samples = 0;  // b
    DType dtype = DType::F32;
    SparseKind optimizer = SparseKind::Sgd;
    bool mean = false;  // bags are averaged instead of summed
    bool bf16_exchange = false;
    bool training = true;  // without, there is no state and no backward
    uint64_t seed = 0;
    StepMarks marks;  // told of Vectors and Gradients
  };
  // `comm` is this object's own; its work goes to `comm_stream`, computation to `compute`, both on the device
  // of `ops`. References must outlive the tables.
  EmbeddingTables(const Placement& placement, Communicator& comm, const OpTable& ops, const How& how,
                  Stream& compute, Stream& comm_stream);
  ~EmbeddingTables();
  EmbeddingTables(const EmbeddingTables&) = delete;
  EmbeddingTables& operator=(const EmbeddingTables&) = delete;

  // Gives the lookups of a new batch (IdExchange::make_batch) their tables.
  void connect(LookupBatch& batch) const;

  // Looks up and sends. Until `finish_forward` features belong to this object, but for their first D columns.
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

  // Bytes of tables, of state and of what exchanges and updates need here.
  struct Memory {
    size_t tables = 0, state = 0, buffers = 0;
  };
  Memory memory() const;
  int64_t bytes_sent() const { return comm_.bytes_sent(); }

 private:
  // The part of a table that is here; lists are in the order of LookupBatch.
  struct Part {
    int table = 0;
    Rect rect;
    Buffer values, state, second;
    bool names_rows = true;  // of a state that belongs to rows: this part saves it
  };
  // Gradients of replicated tables: all rows, and which of them were touched.
  struct Copies {
    Buffer memory;
    Tensor all;  // what is added up over the ranks
    std::vector<Tensor> gradients;
    std::vector<Buffer> order_memory;
    std::vector<LookupOrder> orders;  // of all rows: what was touched says `touched` of the update
    std::vector<RowUpdate> stores, updates;
  };

  void add_part(int table, const Rect& rect, bool names_rows);
  Buffer room_for(int64_t numbers, DType dtype) const;
  void initialise(const Part& part) const;
  void write_initial(const Part& part, int64_t first, Tensor rows) const;
  void make_copies();
  void make_row_orders();
  Tensor values(const Part& part) const;
  Tensor state(const Part& part, const Buffer& buffer) const;
  void send(Tensor out, Tensor in, Buffer& out_short, Buffer& in_short, StepPart part);
  void mark_travel(StepPart part, bool begins);
  void add_squares(const LookupBatch& batch, Tensor gradients, double grad_scale);
  void update_copies(const LookupBatch& batch, Tensor dfeatures, const SparseRule& rule);
  bool alone() const { return placement_.ranks() == 1; }

  const Placement& placement_;
  Communicator& comm_;
  const OpTable& ops_;
  How how_;
  Stream& compute_;
  Stream& comm_stream_;
  int64_t width_ = 0;  // D
  std::vector<Part> parts_;
  size_t shards_ = 0;  // parts that are shards; the rest are copies
  Copies copies_;
  Buffer made_;      // [B, W] of this rank's shards: vectors, then their gradients
  Buffer received_;  // [b, W_s] of every rank s, one after another
  Buffer made_short_, received_short_;
  Buffer squares_;
  std::vector<int64_t> squares_at_;  // of each shard; -1 where its columns are whole
  std::vector<int64_t> made_counts_, received_counts_;
  std::vector<std::vector<ColumnCopy>> unpack_, pack_;  // from and to each rank
  std::vector<RowUpdate> updates_;
  std::vector<ColumnCopy> mean_;
  Event arrived_;
};

// The rule's name in checkpoints of its state ("embedding_s/..."), and its bytes for a row of D numbers.
size_t state_bytes_of_row(SparseKind kind, int64_t width, DType dtype);

}  // namespace trifold
