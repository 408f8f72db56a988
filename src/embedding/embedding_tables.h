// EmbeddingTables: the embedding tables of a model, sharded over ranks, with their optimizer's state, and
// the two exchanges of a step. b = samples of this rank, B = ranks * b = samples of the global batch, F = number of
// tables, D = width of vectors, W = columns of this rank's shards. `features` is [b, (F + 1) D] as in models/dlrm.h, or
// [b, F D] without a bottom MLP: the vector of table t is in D columns from Placement::feature_column on.
//
//   forward   every rank looks up its shards for the whole global batch: one row [W] per sample. An all-to-all sends
//             [b, W_s] from each rank s to each rank. Partial sums of a bag are added in rank order. For averaged bags,
//             the receiving rank multiplies by 1 / length.
//   backward  the reverse: the gradients of b samples are sent to every rank that contributed to their vectors, which
//             receives [B, W] in the order of the samples. Then each touched row is updated once, with
//             the sum over the global batch. Gradients are of the mean loss over the global batch, on any
//             number of ranks.
//
// With a single rank nothing is sent or copied (vector_exchange.h). Gradients of replicated tables are summed over
// the ranks (table_copies.h).
//
// Everything runs on the device of the table of operations, if it has one. A step waits for streams only: the
// sizes of messages follow from the placement, and the host reads nothing from the device.
//
// For a table whose columns are on several ranks, row-wise Adagrad first sums the squares of its rows over
// the ranks.
#pragma once

#include <memory>
#include <optional>
#include <span>
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
    bool training = true;  // false: no optimizer state and no backward
    uint64_t seed = 0;
    StepMarks marks;        // called for Vectors and Gradients
    double init_range = 0;  // range of initial values (TablePart::Options)
    TableStorage storage =
        {};  // storage of shards; replicated tables are in memory. on_device must agree with `ops`
  };
  // `comm` must not be used by others; its work runs on `comm_stream`, computation on `compute`, both on the
  // device of `ops`. References must outlive the tables.
  EmbeddingTables(const Placement& placement, Communicator& comm, const OpTable& ops, const Options& options,
                  Stream& compute, Stream& comm_stream);
  ~EmbeddingTables();
  EmbeddingTables(const EmbeddingTables&) = delete;
  EmbeddingTables& operator=(const EmbeddingTables&) = delete;

  // Connects the lookups of a new batch (IdExchange::make_batch) to their tables.
  void connect(LookupBatch& batch) const;

  // For cached tables (TableStorage): brings the rows of a batch into memory and replaces rows by slots in its lists.
  // The batch must be connected and filled (IdExchange::distribute) and not finished. `changes`: the batch will be
  // sorted and change the rows. May run on another thread during the step of the previous batch; batches must be used
  // in the order of these calls. `stream` must have executed the step of the batch before the previous one; moves to a
  // device are enqueued on it.
  void bring_in(LookupBatch& batch, bool changes, Stream& stream);
  // Writes changed rows back to files, or to tables on the host. Call it before reading the tensors of
  // checkpoint_tensors. No step and no bring_in may be in progress.
  void settle();
  // Call it after the tensors of checkpoint_tensors were written.
  void reload();
  bool is_cached() const;
  // Row counts of all batches so far, summed over cached tables.
  RowCache::Counts counts() const;

  // Gives rows of a keyed table their initial values and a state of zero on every rank that holds them. No step and no
  // bring_in may be in progress; the batch that was brought in last may contain these rows.
  void begin_rows(int table, std::span<const int32_t> rows);

  // Looks up vectors and starts sending them. Until finish_forward, the caller may use only the bottom MLP's columns of
  // `features`.
  void forward(const LookupBatch& batch, Tensor features);
  void finish_forward(const LookupBatch& batch, Tensor features);
  // Sends the gradients of the features [b, (F + 1) D]. Scales them if bags are averaged.
  void backward(const LookupBatch& batch, Tensor dfeatures);
  // Receives gradients and updates all touched rows; `rule.kind` must equal Options::optimizer.
  // `dfeatures` as in backward.
  void update(const LookupBatch& batch, Tensor dfeatures, const SparseRule& rule);

  // Values and state, in place, as boxes of global tensors: "param/embedding.<table>.weight",
  // "adagrad_sum/...". For a save, exactly one rank lists each box; for a load, all ranks that hold it do.
  std::vector<NamedTensor> checkpoint_tensors(bool to_load) const;

  // A tensor that several ranks hold: a replicated table or its state, or per-row sums of a table whose columns are on
  // several ranks.
  struct Copy {
    NamedTensor tensor;
    int copies = 1;          // ranks that hold it
    bool is_first = true;    // set on one of them
    bool is_cached = false;  // settle() must be called before it is read
  };
  std::vector<Copy> copies() const;

  // Bytes of a rank's tables. `tables`, `state` and `buffers` (of exchanges and updates) are in the memory of
  // operations; for cached tables they count the slots and, on the host, the bookkeeping. `shared` is host memory that
  // a device shares, `host` other host memory for tables of a device.
  struct Memory {
    size_t tables = 0, state = 0, buffers = 0, shared = 0, host = 0, files = 0;
    void add(const PartBytes& part);
    void operator+=(const Memory& more);
  };
  Memory memory() const;
  // The memory of a rank of a placement, computed without constructing the tables.
  static Memory memory(const Placement& placement, int rank, const Options& options);
  // Divides a rank's cache among groups of tables: sets TableStorage::cache in the options of each group.
  static void share_cache(const std::vector<const Placement*>& groups, int rank,
                          std::vector<Options>& options);
  // The least cache (TableStorage) with which a rank holds the rows of two batches.
  static size_t least_cache(const Placement& placement, int rank, const Options& options);
  // Bytes of a device's workspace that updates need for the largest batch. It is allocated at construction,
  // because cudaMalloc during training would wait for all work in flight.
  static size_t update_workspace(const Placement& placement, int rank, const Options& options);
  int64_t bytes_sent() const { return comm_.bytes_sent(); }

 private:
  static VectorExchange::Options exchange_options(const Options& options);
  int parts_of_rows(const Shard& shard) const;
  void add_part(int table, const Rect& rect, bool names_rows, int64_t slots, int64_t batch_ids);
  void add_squares(const LookupBatch& batch, Tensor gradients, double grad_scale);

  const Placement& placement_;
  Communicator& comm_;
  const OpTable& ops_;
  Options options_;
  Stream& compute_;
  Stream& comm_stream_;
  // The disk queue and merger of parts in files.
  struct Disk {
    explicit Disk(std::span<const RowRecords> layouts) : queue(most_pages(layouts)), merger(layouts) {}
    static size_t memory(std::span<const RowRecords> layouts);
    static int64_t most_pages(std::span<const RowRecords> layouts);
    PageQueue queue;
    RowMerger merger;
    RowDisk both{queue, merger};
  };
  std::unique_ptr<Disk> disk_;
  std::vector<TablePart> parts_;  // in the order of the lists of LookupBatch
  size_t shards_ = 0;             // parts that are shards; the rest are replicated tables
  std::vector<RowUpdate> updates_;
  std::vector<ColumnCopy> mean_;
  // With several ranks:
  std::optional<VectorExchange> exchange_;
  std::optional<TableCopies> copies_;
  Buffer squares_;
  std::vector<int64_t> squares_at_;  // each shard's offset in squares_; -1 if its columns are not cut
};

}  // namespace trifold
