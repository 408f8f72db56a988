// Recommender: one rank of a DLRM: its MLPs, a copy on every rank whose gradients are summed over all of
// them, and its part of the embedding tables, with what moves ids and vectors between ranks. The ranks may
// shard the optimizer state and the summed gradients of the MLPs (zero/zero_stage.h).
//
// A batch is fetched first: read, its ids sent to the ranks that hold the rows, and sorted. That needs no
// weights, so with a spare core it runs on a thread of its own while the step before computes. Then the
// executor (pipeline/executor.h) runs the step, whose plan is that of schedule/table_step.h: it computes the
// model's blocks, and what the other actions do is here.
//
// The loss is the mean over the real samples of the global batch, and so are all gradients, on every number
// of ranks.
//
// On a device the tables, the MLPs, their state and what a batch brings are there; batches come in on a
// stream of their own. A step of one rank, or of ranks over NCCL, waits for its sum of losses alone, with the
// backward on its way: the host is back before the updates are done. With ranks as threads the host carries
// what travels, so it also waits for the gradients before the updates.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clicks/click_batch.h"
#include "config/fields/config.h"
#include "data_parallel/grad_norm.h"
#include "embedding/embedding_tables.h"
#include "models/dlrm.h"
#include "optim/step_numbers.h"
#include "pipeline/executor.h"
#include "recommend/recommender_memory.h"
#include "schedule/table_step.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

struct RecommenderSetup {
  DlrmShape model;
  ClickSchema schema;
  std::vector<TablePlacement> placement;
  int64_t global_batch = 0;  // shared out evenly, rounded up: padding fills the rest
  DType dtype = DType::F32;  // of tables and their optimizer's state, vectors, features, logits: f32 or f64
  bool bf16 = false;         // weights and activations of the MLPs and the cross network; f32 masters
  OptimizerConfig dense_optimizer;
  int zero_stage = 0;    // of the MLPs; at most 2
  double clip_grad = 0;  // largest norm of the MLPs' gradient; 0: no limit, and the norm is not computed
  SparseRule sparse;     // its lr and step are those of each step
  bool mean = false;     // bags are averaged
  bool bf16_exchange = false;
  bool training = true;
  int64_t check_overlap = 0;  // the first so many steps are computed twice (run/overlap_check.h)
  bool overlap = true;        // fetch on a thread of its own where a core is spare
  uint64_t seed = 0;
  std::optional<int> threads;  // of this rank; a fair share of the host
  ComputeDevice device = ComputeDevice::Auto;
  bool tf32 = false;  // f32 products on a device from factors rounded to TF32
  StepMarks marks;    // of this rank

  // What they mean for one of so many ranks: its samples of a global batch, its lookups, its tables, and the
  // bytes of what else of a batch goes to a device.
  int64_t samples(int ranks) const { return (global_batch + ranks - 1) / ranks; }
  DType dense_dtype() const { return bf16 ? DType::BF16 : dtype; }
  LookupOptions lookups(int ranks) const;
  EmbeddingTables::Options tables(int ranks) const;
  size_t batch_room(int ranks) const;
};

// Of the plan of its step.
TableStepShape step_shape(const RecommenderSetup& setup);
// With which part of the step an action is measured and planned; nothing of those that only wait for all
// ranks.
std::optional<StepPart> part_of(const Action& action, const TableStepShape& step);

std::vector<EmbeddingTable> embedding_tables(const ClickSchema& schema, int64_t width);

class Recommender {
 public:
  // Collective over `world`, which must outlive it.
  Recommender(Communicator& world, const RecommenderSetup& setup);
  ~Recommender();
  Recommender(const Recommender&) = delete;
  Recommender& operator=(const Recommender&) = delete;

  // Samples of this rank in a global batch; rank r has those from r * samples() on.
  int64_t samples() const { return samples_; }

  // Fetches a batch; `read` fills it, on whatever thread. At most one may be fetched and not used.
  // Collective.
  using Read = std::function<void(ClickBatchBuffer&)>;
  void fetch(Read read);

  // Trains on the oldest fetched batch. `real` are the samples of the global batch that are not padding.
  // `step` counts from 1. Returns the mean loss before the update, the same on all ranks. Where that or
  // grad_norm() is not finite nothing is changed: the step is computed once more, and all ranks throw the
  // same error (Agreed), which names the first number that is not finite (run/finite_search.h). Collective.
  // `next` is called as soon as a batch may be fetched.
  double train(int64_t real, int64_t step, double dense_lr, double sparse_lr,
               const std::function<void()>& next);
  // Of the MLPs' gradient in the last step, before clipping; 0 where nothing is clipped.
  double grad_norm() const { return grad_norm_; }
  // Logits [samples(), 1] of the oldest fetched batch, and the batch, both on the host: valid until the next
  // call of `score` or `train`, and for the batch until two more are fetched.
  // Collective.
  struct Scored {
    Tensor logits;
    const ClickBatch* batch;
  };
  Scored score();

  // All weights and optimizer states, for a checkpoint, where they live (run/tensors_on_host.h); after
  // loading into them call `loaded`.
  std::vector<NamedTensor> checkpoint_tensors(bool to_load);
  void loaded();

  // Shows every step to `watch`, null for nobody, also when one is computed a second time.
  void watch(StepWatch* watch) { watch_ = watch; }

  // Compares what several ranks hold alike, weights and state, as run/replica_check.h says. Collective.
  void check_replicas(const std::string& when);

  RecommenderMemory memory() const;
  int64_t parameters() const;  // of the whole model
  double flops_per_sample() const { return train_flops(model_); }
  const Placement& placement() const { return placement_; }
  const Mesh& mesh() const { return mesh_; }
  const OpTable& ops() const { return ops_; }
  Stream& compute() { return compute_; }
  // Waits for all that is under way, a batch that is being fetched included.
  void synchronize();
  int threads() const { return pool_.size(); }
  // Whether batches are fetched on a thread of its own.
  bool fetches_ahead() const { return fetch_worker_.has_value(); }
  // Bytes this rank has sent so far: ids, vectors and gradients of vectors (each way counted).
  struct Traffic {
    int64_t ids = 0, vectors = 0;
  };
  Traffic traffic() const { return {ids_->bytes_sent(), tables_->bytes_sent()}; }
  Tensor weight(const std::string& name) { return weights_.weight(model_.params.find(name)); }

 private:
  struct Fetched {
    // `pool` fills the clicks.
    Fetched(const OpTable& ops, const RecommenderSetup& setup, int ranks, ThreadPool& pool);
    // Brings what operations read of `clicks` to where they read it.
    void send(const OpTable& ops, Stream& stream);

    ClickBatchBuffer clicks;
    DlrmBatch rows;  // of clicks, for operations
    CopyIn written;
    std::unique_ptr<LookupBatch> lookups;
    Event summed;  // the losses of this rank
    Event ready;
    Event used;  // by all that was enqueued with it
  };
  class Search;
  class Marks;

  // A step, or the forward of one, under way.
  struct StepState {
    Fetched& fetched;
    const std::function<void()>* next = nullptr;  // fetches the next batch
    int64_t real = 0;
    double dense_lr = 0;
    SparseRule rule = {};
    StepWatch* watch = nullptr;
    double loss = 0;  // the mean over all ranks
  };

  Fetched& oldest();
  // What the blocks take of a batch.
  Batch batch_of(const Fetched& fetched) const;
  // Has the executor do actions of a step.
  void run(const RankPlan& row, StepState& state);
  // What an action does that is of no block.
  void execute(const Action& action, StepState& state);
  double mean_loss(const StepState& state);
  // Once the gradients are on their way: finishes their sums and returns their norm. Collective.
  double norm_of_gradients();
  // Computes what is before the update of a step once more, of the same batch, shown to `watch`.
  StepState repeat(const StepState& state, StepWatch& watch);
  // Repeats it with nothing at the same time; an Error where a bit differs.
  void repeat_without_overlap(const StepState& state);
  // Computes the step once more to find out why its loss or norm is not finite. Collective; an Error of kind
  // Agreed.
  [[noreturn]] void explain(const StepState& failed);
  std::vector<Stream*> streams();

  Communicator& world_;
  RecommenderSetup setup_;
  int64_t samples_;
  const OpTable& ops_;
  Mesh mesh_;
  ThreadPool pool_, comm_pool_, fetch_pool_;
  Stream compute_, comm_;
  std::optional<Stream> fetch_worker_;  // absent: fetching is done by compute_
  std::unique_ptr<Communicator> id_comm_, vector_comm_;
  Placement placement_;
  Model model_;
  ZeroSharing zero_;
  DataGroups groups_;
  FlatLayout layout_;
  ParamStore weights_;
  GradientBuffer grads_;
  ShardedOptimizer optimizer_;
  std::optional<GradNorm> norm_;  // where gradients are clipped
  double grad_norm_ = 0;
  StepWatch* watch_ = nullptr;
  int64_t checked_ = 0;                  // steps that were repeated without overlap
  RankPlan gradients_row_, update_row_;  // the actions of a step, to the norm and from there
  StepNumbers numbers_;                  // the rule of the tables; the factor of the loss
  std::unique_ptr<IdExchange> ids_;
  std::unique_ptr<EmbeddingTables> tables_;
  StepMemory memory_;
  Buffer features_, feature_gradients_;
  Buffer scores_;  // for the host
  std::unique_ptr<Executor> executor_;
  std::vector<std::unique_ptr<Fetched>> fetched_;
  int64_t fetches_ = 0;
  int64_t used_ = 0;
};

}  // namespace trifold
