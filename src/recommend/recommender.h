// Recommender: one rank of a DLRM: its copy of the MLPs, whose gradients are summed over all ranks, its part of the
// embedding tables, and the exchange of ids and vectors between ranks. The ranks may shard the optimizer state and the
// summed gradients of the MLPs (zero/zero_stage.h).
//
// A batch is fetched first: read, its ids sent to the ranks that hold the rows, and sorted. That needs no weights, so
// with a spare core it runs on its own thread during the previous step. Then the executor (pipeline/executor.h) runs
// the step by the plan of schedule/table_step.h: it computes the model's blocks; the other actions are implemented
// here.
//
// Loss and gradients are means over the real samples of the global batch, for any number of ranks.
//
// With a device the tables, the MLPs, their state and the batch are in device memory; batches are copied on their own
// stream. With one rank, or with ranks over NCCL, a step waits only for the sum of losses while the backward pass is in
// flight: the host returns before the updates are done. With ranks as threads the host moves the data between ranks, so
// it also waits for the gradients before the updates.
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
  DType dtype = DType::F32;  // of tables and their optimizer's state, vectors, features, logits: f32 or f64
  bool bf16 = false;         // weights and activations of the MLPs and the cross network; f32 masters
  OptimizerConfig dense_optimizer;
  int zero_stage = 0;    // of the MLPs; at most 2
  double clip_grad = 0;  // largest norm of the MLPs' gradient; 0: no limit, and the norm is not computed
  SparseRule sparse;     // its lr and step are those of each step
  TableStorage storage;  // of the tables that are sharded; on_device: in a plan for one
  bool mean = false;     // bags are averaged
  bool bf16_exchange = false;
  bool training = true;
  int64_t check_overlap = 0;  // the first check_overlap steps are computed twice (run/overlap_check.h)
  // With a zero_stage, replicas of the MLPs are compared before the update of every check_replicas-th step, which would
  // make them equal; 0: never.
  int64_t check_replicas = 0;
  bool overlap = true;  // fetch on a separate thread if a core is spare
  uint64_t seed = 0;
  double init_range = 0;       // of the tables (embedding/table_part.h)
  std::optional<int> threads;  // of this rank; default: a fair share of the host's cores
  ComputeDevice device = ComputeDevice::Auto;
  bool tf32 = false;        // f32 products on a device with operands rounded to TF32
  StepMarks marks;          // of this rank
  KeyRule keys;             // of tables whose ids are keys
  double logit_offset = 0;  // added to the logits that Recommender::score returns

  // Which tables there are, and which columns of ids look them up. `placement` has a choice for each table.
  TableUses uses() const;
  // Sets model.places, after model.attended and the schema.
  void place_vectors();

  // Derived values for one of `ranks` ranks: its samples of a global batch; its lookups and tables, of a group in which
  // a sample has `bags` bags; and the bytes of the rest of a batch that go to a device.
  int64_t samples(int ranks) const { return (global_batch + ranks - 1) / ranks; }
  DType dense_dtype() const { return bf16 ? DType::BF16 : dtype; }
  LookupOptions lookups(int ranks, int64_t bags = 1) const;
  EmbeddingTables::Options tables(int ranks, int64_t bags = 1) const;
  // The same of all groups on a rank, which share its cache.
  std::vector<EmbeddingTables::Options> tables(const std::vector<TableGroup>& groups, int rank) const;
  size_t batch_room(int ranks) const;
};

// The shape of the step's plan.
TableStepShape step_shape(const RecommenderSetup& setup);
// The part of the step to which an action belongs in measurements and plans; nullopt for actions that only wait for all
// ranks.
std::optional<StepPart> part_of(const Action& action, const TableStepShape& step);

// The tables of vectors of `width` numbers, each followed by a weight for every label with `wide`. Without the bags
// that are looked up one by one.
std::vector<EmbeddingTable> embedding_tables(const ClickSchema& schema, int64_t width, bool wide = false);
// All of the setup's tables, as it places them.
Placement placement_of(const RecommenderSetup& setup, int ranks);
// Shape of the vectors that are looked up for `samples` samples in a group, with DlrmShape::places.
Shape looked_up_shape(const RecommenderSetup& setup, const TableGroup& group, int64_t samples);

// The kinds of the running statistics of batch normalisation, of each layer (DlrmShape::normed).
inline constexpr const char* kNormKinds[] = {"norm_mean", "norm_variance"};
// Whether a stored tensor decides predictions: weights, owners of rows, running statistics.
bool is_of_model(std::string_view tensor);

// The kind of the tensors that hold the owners of rows (clicks/keys/key_table.h), for each table of keys.
inline constexpr const char* kKeysKind = "keys";
// Those of the keys that wait for a row, and of the counts of all other keys.
inline constexpr const char* kWaitingKeysKind = "waiting_keys";
inline constexpr const char* kKeyCountsKind = "key_counts";

class Recommender {
 public:
  // Collective over `world`, which must outlive it.
  Recommender(Communicator& world, const RecommenderSetup& setup);
  ~Recommender();
  Recommender(const Recommender&) = delete;
  Recommender& operator=(const Recommender&) = delete;

  // Samples of this rank in a global batch; rank r has those from r * samples() on.
  int64_t samples() const { return samples_; }

  // Fetches a batch; `read` fills it, on any thread. At most one batch may be fetched but not used. Collective.
  using Read = std::function<void(ClickBatchBuffer&)>;
  void fetch(Read read);
  // The same for global batch `step` (counted from 0) of `feed`, whose samples of this rank are read. `trains`: tables of
  // keys take its keys first; the next `train` uses it.
  void fetch(const ClickFeed& feed, int64_t step, bool trains);

  // The updates that weights and optimizer state have seen in runs before this one, for rules that count them.
  void set_updates_before(int64_t updates) { updates_before_ = updates; }

  // Trains on the oldest fetched batch. `real` are the samples of the global batch that are not padding.
  // `step` counts from 1. Returns the mean loss before the update, the same on all ranks. If that or grad_norm() is not
  // finite, nothing is changed: the step is computed again, and all ranks throw the same error (Agreed), which names
  // the first number that is not finite (run/finite_search.h). `next` is called as soon as the next batch may be
  // fetched. Collective.
  double train(int64_t real, int64_t step, double dense_lr, double sparse_lr,
               const std::function<void()>& next);
  // Norm of the MLPs' gradient in the last step, before clipping; 0 without clipping.
  double grad_norm() const { return grad_norm_; }
  // Logits [samples(), labels] of the oldest fetched batch, and the batch, both on the host: valid until the next
  // call of `score` or `train`, and for the batch until two more are fetched.
  // Collective.
  struct Scored {
    Tensor logits;
    const ClickBatch* batch;
  };
  Scored score();

  // All weights and optimizer states for a checkpoint, in the memory where they live (run/tensors_on_host.h); of cached
  // tables that of the store. Call `settle` before these are read, or before a part of them is overwritten. After loading call
  // `loaded`; no batch may be fetched then.
  std::vector<NamedTensor> checkpoint_tensors(bool to_load);
  void settle();
  // After some rows of tables alone were overwritten.
  void reload_tables();
  const RecommenderSetup& setup() const { return setup_; }
  // `key_batches`: the checkpoint's, or nothing if it has none.
  void loaded(std::span<const uint32_t> key_batches = {});
  // The batches that each table of keys has taken, 0 for other tables; to be saved with the tensors.
  std::vector<uint32_t> key_batches();
  // BadInput, naming a tensor, unless a run whose tables of keys took `key_batches` batches (nothing: at most `updates`)
  // writes what they hold now. To be called after they were loaded.
  void check_keys(std::span<const uint32_t> key_batches, int64_t updates);

  // While it exists, tables of keys are as the last step left them, though the next batch may have been fetched: for a
  // save.
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

  // Shows every step, repeated ones included, to `watch`; null: none.
  void watch(StepWatch* watch) { watch_ = watch; }

  // Compares replicated weights and state (run/replica_check.h). Collective.
  void check_replicas(const std::string& when);

  RecommenderMemory memory() const;
  int64_t parameters() const;  // of the whole model
  double flops_per_sample() const { return train_flops(setup_, model_, mesh_); }
  const Placement& placement() const { return placement_; }
  const Mesh& mesh() const { return mesh_; }
  const OpTable& ops() const { return ops_; }
  Stream& compute() { return compute_; }
  // Waits for all work in flight, including the fetch of a batch.
  void synchronize();
  int threads() const { return pool_.size(); }
  // Whether batches are fetched on a separate thread.
  bool fetches_ahead() const { return fetch_worker_.has_value(); }
  // Bytes this rank has sent so far: ids, vectors and gradients of vectors (each way counted).
  struct Traffic {
    int64_t ids = 0, vectors = 0;
  };
  Traffic traffic() const;
  // Rows of cached tables of this rank, up to the batch that was used last: those that batches needed, and those of
  // them that were in memory when they were fetched.
  RowCache::Counts cached_rows() const { return cached_rows_; }
  Tensor weight(const std::string& name) { return weights_.weight(model_.params.find(name)); }

 private:
  struct Fetched {
    // `pool` fills the clicks.
    Fetched(const OpTable& ops, const RecommenderSetup& setup, int ranks, ThreadPool& pool);
    // Copies what operations read of `clicks` to their memory.
    void send(const OpTable& ops, Stream& stream);

    ClickBatchBuffer clicks;
    DlrmBatch rows;  // `clicks` as operations see them
    CopyIn written;
    std::vector<std::unique_ptr<LookupBatch>> lookups;  // of each group
    Buffer real;                                        // WholeBatch::real, on the host
    Event summed;                                       // the sum of this rank's losses
    Event ready;
    Event used;                               // by all work enqueued with the batch
    RowCache::Counts counts;                  // of cached tables, of this batch and those before
    std::vector<std::vector<int32_t>> begun;  // of each table, rows to initialise again before the step
  };
  class Search;
  class Marks;

  // A group of tables, with its part of the step.
  struct Tables {
    TableGroup group;
    BagBatch bags;
    std::unique_ptr<Communicator> id_comm, vector_comm;
    std::unique_ptr<IdExchange> ids;
    std::unique_ptr<EmbeddingTables> tables;
    Buffer vectors, gradients;  // with DlrmShape::places
  };

  // A step, or a forward pass, in progress.
  struct StepState {
    Fetched& fetched;
    const std::function<void()>* next = nullptr;  // fetches the next batch
    int64_t real = 0;
    int64_t step = 0;
    double dense_lr = 0;
    int64_t first_sample = 0;  // of the run, that is here: what dropout is keyed by
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
  // Repeats a step up to its update on the same batch, shown to `watch`.
  StepState repeat(const StepState& state, StepWatch& watch);
  // Repeats it without any overlap; throws Error if a bit differs.
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
  // Begins the rows that other keys have got.
  void begin_rows(const Fetched& fetched);
  // Undoes, or redoes, the changes to tables of keys by a batch that was fetched and not trained on.
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
  std::optional<Stream> fetch_worker_;  // absent: compute_ does the fetching
  Placement placement_;                 // of all tables
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
  RankPlan gradients_row_, update_row_;  // the actions of a step, to the norm and from there
  StepNumbers numbers_;                  // the rule of the tables, the factor of the loss
  std::vector<std::unique_ptr<Tables>> groups_of_tables_;
  KeyTables keys_;
  int64_t taken_ = 0, trained_ = 0;  // batches whose keys were taken, and those of them that were trained on
  StepMemory memory_;
  Buffer features_, feature_gradients_;
  std::unique_ptr<Communicator> norm_comm_;  // with batch normalisation on several ranks
  Buffer running_, latest_;                  // WholeBatch
  Buffer scores_;                            // for the host
  std::unique_ptr<Executor> executor_;
  std::vector<std::unique_ptr<Fetched>> fetched_;
  RowCache::Counts cached_rows_;
  int64_t fetches_ = 0;
  int64_t used_ = 0;
};

}  // namespace trifold
