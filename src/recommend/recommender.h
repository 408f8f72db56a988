// Recommender is one rank of a DLRM. It has a replica of the MLPs, whose gradients are summed over all ranks, and a
// part of the embedding tables; ranks exchange ids and vectors. The ranks may shard the optimizer state and the summed
// gradients of the MLPs (zero/zero_stage.h).
//
// A batch is *fetched* before it is used: its samples are read, and its ids are sent to the ranks that hold the rows
// and sorted there. Fetching needs no weights, so with a spare core it runs on its own thread during the previous step.
// Then the executor (pipeline/executor.h) runs the step by the plan of schedule/table_step.h: it computes the model's
// blocks; all other actions are implemented here.
//
// Loss and gradients are means over the real samples (not padding) of the global batch, for any number of ranks.
//
// With a device, the tables, the MLPs, their state and the batch are in device memory, and batches are copied on a
// separate stream. With one rank, or with ranks over NCCL, a step waits for the sum of losses alone, while the backward
// pass is in flight; train() returns before the updates are done. With ranks as threads the host moves the data between
// ranks, so it also waits for the gradients before the updates.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clicks/click_batch.h"
#include "clicks/keys/key_tables.h"
#include "config/fields/config.h"
#include "data_parallel/grad_norm.h"
#include "embedding/embedding_tables.h"
#include "embedding/table_groups.h"
#include "models/dlrm.h"
#include "optim/step_numbers.h"
#include "pipeline/executor.h"
#include "recommend/planning/recommender_memory.h"
#include "schedule/table_step.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

struct RecommenderSetup {
  DlrmShape model;
  ClickSchema schema;
  std::vector<TablePlacement> placement;
  int64_t global_batch = 0;  // divided evenly, rounded up; the rest is padding
  DType dtype = DType::F32;  // f32 or f64, for tables, their optimizer state, vectors, features, logits
  bool bf16 = false;         // weights and activations of the MLPs and the cross network; f32 masters
  OptimizerConfig dense_optimizer;
  int zero_stage = 0;    // for the MLPs; at most 2
  double clip_grad = 0;  // largest norm of the MLPs' gradient; 0: no clipping, the norm is not computed
  SparseRule sparse;     // each step sets its lr and step
  TableStorage storage;  // for sharded tables; a Recommender sets on_device itself
  bool mean = false;     // bags are averaged
  bool bf16_exchange = false;
  bool training = true;
  int64_t check_overlap = 0;  // the first check_overlap steps are computed twice (run/checks/overlap_check.h)
  // With a zero_stage, replicas of the MLPs are compared before the update of every check_replicas-th step, which would
  // make them equal; 0: never.
  int64_t check_replicas = 0;
  bool overlap = true;  // fetch on a separate thread if a core is spare
  uint64_t seed = 0;
  double init_range = 0;       // for the tables (embedding/table_part.h)
  std::optional<int> threads;  // on this rank; default: its fair share of the host's cores
  ComputeDevice device = ComputeDevice::Auto;
  bool tf32 = false;        // f32 products on a device with operands rounded to TF32
  StepMarks marks;          // for this rank
  KeyRule keys;             // for tables whose ids are keys
  double logit_offset = 0;  // added to the logits that Recommender::score returns

  // The tables, and which columns of ids look them up. `placement` has one entry per table.
  TableUses uses() const;
  // Sets model.places. To be called once model.attended and the schema are set.
  void place_vectors();

  // Values for one of `ranks` ranks: its samples of a global batch; the options of its lookups and tables, for a group
  // in which a sample has `bags` bags; and in batch_room the bytes of the rest of a batch that is copied to a device.
  int64_t samples(int ranks) const { return (global_batch + ranks - 1) / ranks; }
  DType dense_dtype() const { return bf16 ? DType::BF16 : dtype; }
  LookupOptions lookups(int ranks, int64_t bags = 1) const;
  EmbeddingTables::Options tables(int ranks, int64_t bags = 1) const;
  // Options of the tables of all groups on a rank, which share the memory of its cache.
  std::vector<EmbeddingTables::Options> tables(const std::vector<TableGroup>& groups, int rank) const;
  size_t batch_room(int ranks) const;
};

// The shape of the plan of a step.
TableStepShape step_shape(const RecommenderSetup& setup);
// The part of the step to which measurements and plans assign an action; nullopt for actions that only wait for all
// ranks.
std::optional<StepPart> part_of(const Action& action, const TableStepShape& step);

// The embedding tables for vectors of width `width`; with `wide`, a row also has a first-order weight for every label.
// Assumes that no column is looked up one by one; see RecommenderSetup::uses.
std::vector<EmbeddingTable> embedding_tables(const ClickSchema& schema, int64_t width, bool wide = false);
// The placement of all tables of `setup`.
Placement placement_of(const RecommenderSetup& setup, int ranks);
// With DlrmShape::places: the shape of the vectors looked up for `samples` samples in a group.
Shape looked_up_shape(const RecommenderSetup& setup, const TableGroup& group, int64_t samples);

// Kinds of checkpoint tensors: the running statistics of each layer with batch normalisation (DlrmShape::normed).
inline constexpr const char* kNormKinds[] = {"norm_mean", "norm_variance"};
// Whether a checkpoint's tensor affects predictions: weights, owners of rows, running statistics.
bool is_of_model(std::string_view tensor);

// Kind of the checkpoint tensors with the keys that own rows (clicks/keys/key_table.h), one for each table of keys.
inline constexpr const char* kKeysKind = "keys";
// Kinds of the checkpoint tensors with the keys that wait for a row, and with the counts of all other keys.
inline constexpr const char* kWaitingKeysKind = "waiting_keys";
inline constexpr const char* kKeyCountsKind = "key_counts";

// Identities (Communicator::split_by) of the communicators that exchange ids and vectors of a group of tables.
constexpr unsigned ids_group(size_t group) { return (1U << 9) + (static_cast<unsigned>(group) << 16); }
constexpr unsigned vectors_group(size_t group) { return (1U << 10) + (static_cast<unsigned>(group) << 16); }

class Recommender {
 public:
  // Collective over `world`, which must outlive it. `ops` are its operations; null: the operations of its device.
  Recommender(Communicator& world, const RecommenderSetup& setup, const OpTable* ops = nullptr);
  ~Recommender();
  Recommender(const Recommender&) = delete;
  Recommender& operator=(const Recommender&) = delete;

  // This rank's number of samples in a global batch, with padding; rank r has samples [r * samples(), (r + 1) *
  // samples()).
  int64_t samples() const { return samples_; }

  // Fetches a batch; `read` fills it, on any thread. At most one fetched batch may be unused. Collective.
  using Read = std::function<void(ClickBatchBuffer&)>;
  void fetch(Read read);
  // Fetches this rank's samples of global batch `step` (counted from 0) of `feed`. `trains`: the batch is for the next
  // `train`, so tables of keys first take its keys. Collective.
  void fetch(const ClickFeed& feed, int64_t step, bool trains);

  // Sets how many updates weights and optimizer state have seen in earlier runs, for rules that count updates.
  void set_updates_before(int64_t updates) { updates_before_ = updates; }

  // Trains on the oldest fetched batch. `real`: samples of the global batch that are not padding. `step` counts from 1.
  // Returns the mean loss before the update, the same on all ranks. `next` is called as soon as the next batch may be
  // fetched. If the loss or grad_norm() is not finite, nothing is changed: the step is computed again to find the
  // first value that is not finite (run/checks/finite_search.h), and all ranks throw the same error (Agreed), which names it.
  // Collective.
  double train(int64_t real, int64_t step, double dense_lr, double sparse_lr,
               const std::function<void()>& next);
  // Norm of the MLPs' gradient in the last step, before clipping; 0 without clipping.
  double grad_norm() const { return grad_norm_; }
  // Computes the logits [samples(), labels] of the oldest fetched batch. Logits and batch are in host memory; the
  // logits are valid until the next call of `score` or `train`, the batch until two more are fetched. Collective.
  struct Scored {
    Tensor logits;
    const ClickBatch* batch;
  };
  Scored score();

  // All weights and optimizer states for a checkpoint, as views of the memory that holds them (run/tensors_on_host.h);
  // for cached tables, of the store. Call `settle` before they are read, or before a part of them is overwritten. After
  // loading call `loaded`; no batch may be fetched at that time.
  std::vector<NamedTensor> checkpoint_tensors(bool to_load);
  void settle();
  // To be called after nothing but rows of tables was overwritten.
  void reload_tables();
  const RecommenderSetup& setup() const { return setup_; }
  // To be called after checkpoint_tensors were loaded. `key_batches`: from the checkpoint; empty if it has none.
  void loaded(std::span<const uint32_t> key_batches = {});
  // For each table the number of batches whose keys it has taken, 0 without keys; to be saved with the tensors.
  std::vector<uint32_t> key_batches();
  // Checks loaded tables of keys: BadInput, naming a tensor, if a run could not have written their contents after
  // `key_batches` batches per table (empty: `updates` batches).
  void check_keys(std::span<const uint32_t> key_batches, int64_t updates);

  // Scope guard for saving: while it exists, tables of keys are in the state after the last step, even if the next
  // batch has been fetched already.
  class AsOfLastStep {
   public:
    explicit AsOfLastStep(Recommender& model) : model_(model) {
      if (!model.keys_.empty()) model.synchronize();
      model.exchange_ahead();
    }
    ~AsOfLastStep() { model_.exchange_ahead(); }
    AsOfLastStep(const AsOfLastStep&) = delete;
    AsOfLastStep& operator=(const AsOfLastStep&) = delete;

   private:
    Recommender& model_;
  };

  // `watch` sees every step from now on, also repeated ones; null: none.
  void watch(StepWatch* watch) { watch_ = watch; }

  // Compares replicated weights and state (run/checks/replica_check.h). Collective.
  void check_replicas(const std::string& when);

  RecommenderMemory memory() const;
  int64_t parameters() const;  // over all ranks, tables included
  double flops_per_sample() const { return train_flops(setup_, model_, mesh_); }
  const Placement& placement() const { return placement_; }
  const Mesh& mesh() const { return mesh_; }
  const OpTable& ops() const { return ops_; }
  Stream& compute() { return compute_; }
  // Waits for all work in flight, fetches included.
  void synchronize();
  int threads() const { return pool_.size(); }
  // Whether batches are fetched on a separate thread.
  bool fetches_ahead() const { return fetch_worker_.has_value(); }
  // Bytes that this rank has sent so far: ids, and vectors with their gradients.
  struct Traffic {
    int64_t ids = 0, vectors = 0;
  };
  Traffic traffic() const;
  // Counts of rows in this rank's cached tables, summed over all batches up to the last used one (RowCache::Counts).
  RowCache::Counts cached_rows() const { return cached_rows_; }
  Tensor weight(const std::string& name) { return weights_.weight(model_.params.find(name)); }

 private:
  struct Fetched {
    // The threads of `pool` fill the clicks.
    Fetched(const OpTable& ops, const RecommenderSetup& setup, int ranks, ThreadPool& pool);
    // Copies the parts of `clicks` that operations read to the memory of `ops`.
    void send(const OpTable& ops, Stream& stream);

    ClickBatchBuffer clicks;
    DlrmBatch rows;  // the parts of `clicks` that operations read
    CopyIn written;
    std::vector<std::unique_ptr<LookupBatch>> lookups;  // one per group
    Buffer real;                                        // WholeBatch::real, on the host
    Event summed;                                       // after the sum of this rank's losses
    Event ready;
    Event used;                               // after all work enqueued with the batch
    RowCache::Counts counts;                  // for cached tables, up to this batch
    std::vector<std::vector<int32_t>> begun;  // per table, rows to initialise again before the step
  };
  class Search;
  class Marks;

  // A group of tables, with the communicators, buffers and lookups of its part of the step.
  struct Tables {
    TableGroup group;
    BagBatch bags;
    std::unique_ptr<Communicator> id_comm, vector_comm;
    std::unique_ptr<IdExchange> ids;
    std::unique_ptr<EmbeddingTables> tables;
    Buffer vectors, gradients;  // only with DlrmShape::places
  };

  // A step, or a forward pass, in progress.
  struct StepState {
    Fetched& fetched;
    const std::function<void()>* next = nullptr;  // fetches the next batch
    int64_t real = 0;
    int64_t step = 0;
    double dense_lr = 0;
    int64_t first_sample = 0;  // this rank's first sample, counted over the run; the key of dropout
    SparseRule rule = {};
    StepWatch* watch = nullptr;
    double loss = 0;  // the mean over all ranks
  };

  Fetched& oldest();
  // The batch as blocks read it.
  Batch batch_of(const StepState& state) const;
  // Runs actions of a step on the executor.
  void run(const RankPlan& row, StepState& state);
  // Executes an action that does not belong to a block.
  void execute(const Action& action, StepState& state);
  double mean_loss(const StepState& state);
  // Completes the sums of the gradients in flight and returns their norm. Collective.
  double norm_of_gradients();
  // Repeats a step up to its update on the same batch; `watch` sees it.
  StepState repeat(const StepState& state, StepWatch& watch);
  // Repeats a step without any overlap; throws Error if a bit differs.
  void repeat_without_overlap(const StepState& state);
  // Repeats the step to find out why its loss or norm is not finite; throws an Error of kind Agreed. Collective.
  [[noreturn]] void explain(const StepState& failed);
  std::vector<Stream*> streams();
  void make_groups();
  void make_batches();
  bool tables_cached() const;
  static void shift(const Tensor& logits, double offset);
  // Calls body(tables, lookups, vectors, their gradients) for each group.
  template <class Body>
  void for_each_group(const Fetched& fetched, Body body);
  // Initialises the rows that this batch's keys have taken over from other keys.
  void begin_rows(const Fetched& fetched);
  // Undoes, or at the second call redoes, the changes of a fetched batch that was not trained on yet to tables of keys.
  void exchange_ahead();
  std::vector<NamedTensor> key_tensors(bool to_load);
  void make_statistics();
  void update_statistics(int64_t real);
  std::vector<NamedTensor> statistics_tensors() const;

  Communicator& world_;
  RecommenderSetup setup_;
  int64_t samples_;
  const OpTable& ops_;
  Mesh mesh_;
  ThreadPool pool_, comm_pool_, fetch_pool_;
  Stream compute_, comm_;
  std::optional<Stream> fetch_worker_;  // nullopt: compute_ fetches
  Placement placement_;                 // for all tables
  Model model_;
  ZeroSharing zero_;
  DataGroups groups_;
  FlatLayout layout_;
  ParamStore weights_;
  GradientBuffer grads_;
  ShardedOptimizer optimizer_;
  std::optional<GradNorm> norm_;  // only with clipping
  double grad_norm_ = 0;
  int64_t updates_before_ = 0;
  StepWatch* watch_ = nullptr;
  int64_t checked_ = 0;                  // steps that were repeated without overlap
  RankPlan gradients_row_, update_row_;  // actions of a step up to the norm, and after it
  StepNumbers numbers_;                  // the tables' rule, the factor of the loss
  std::vector<std::unique_ptr<Tables>> groups_of_tables_;
  KeyTables keys_;
  int64_t taken_ = 0, trained_ = 0;  // batches whose keys were taken; how many of them were trained on
  StepMemory memory_;
  Buffer features_, feature_gradients_;
  std::unique_ptr<Communicator> norm_comm_;  // with batch normalisation on several ranks
  Buffer running_, latest_;                  // WholeBatch
  Buffer scores_;                            // logits, readable by the host
  std::unique_ptr<Executor> executor_;
  std::vector<std::unique_ptr<Fetched>> fetched_;
  RowCache::Counts cached_rows_;
  int64_t fetches_ = 0;
  int64_t used_ = 0;
};

}  // namespace trifold
