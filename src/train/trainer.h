// Trainer is one rank's training run, built from the configuration. A step is one action list executed by the Executor
// and one optimizer update; everything else (data order, learning rate, evaluation) is a pure function of the
// configuration and of the number of steps done.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "data/later_labels.h"
#include "data/read_ahead.h"
#include "data_parallel/block_norms.h"
#include "data_parallel/grad_norm.h"
#include "data_parallel/grad_zeros.h"
#include "data_parallel/gradient_buffer.h"
#include "optim/loss_scaler.h"
#include "plan/planned_run.h"
#include "run/best_evaluation.h"
#include "run/checks/finite_check.h"
#include "run/health/loss_watch.h"
#include "run/metrics.h"
#include "run/savable.h"
#include "run/start.h"
#include "text/data_fingerprint.h"
#include "train/evaluation.h"
#include "train/expert_loads.h"
#include "train/replica.h"
#include "zero/param_norm.h"
#include "zero/sharded_optimizer.h"

namespace trifold {

class Trainer final : public Savable {
 public:
  // Collective over `world`. `config` must be resolved and valid, and `planned` are its plans; if its order was searched
  // for, all ranks use rank 0's plan. `train` and `valid` (may be null) must outlive the trainer. `ops` are its operations;
  // null: the table of --device.
  Trainer(Communicator& world, const PretrainConfig& config, PlannedRuns planned, const DataSource& train,
          const DataSource* valid, const OpTable* ops = nullptr);
  // Makes the plans itself.
  Trainer(Communicator& world, const PretrainConfig& config, const DataSource& train, const DataSource* valid)
      : Trainer(world, config, PlannedRuns(), train, valid) {}
  ~Trainer() override;

  // Runs one step: all micro-batches of this rank, gradients summed over the data axis, clipping, update. With an
  // asynchronous schedule it runs all steps up to the next drain of the pipeline. If `signal` is not zero on some rank
  // at the end, stop_agreed() becomes true on all ranks. The reports are valid until the next call. From the third step
  // on nothing is allocated (tests/parity/allocation_test.cpp).
  std::span<const StepReport> advance(const std::atomic<int>* signal = nullptr);
  // Calls advance and returns the last report.
  StepReport step(const std::atomic<int>* signal = nullptr) { return advance(signal).back(); }
  // Passes over the next step: its samples are consumed, and weights and learning rate stay. The report of the step is
  // valid until the next call. Not for asynchronous schedules.
  const StepReport& skip();
  // True on every rank once one of them has seen its signal.
  bool stop_agreed() const { return stop_agreed_; }
  // Waits until the next step's first samples can be read, which takes long if a stream must skip the samples already
  // consumed. Returns false on all ranks if one of them sees its signal meanwhile. Collective.
  bool wait_for_data(const std::atomic<int>& signal);
  // Mean loss over eval_iters global batches of the validation data: always the same samples, each at most once.
  EvalReport evaluate();
  // As evaluate(), but stops within seconds if a rank sees its signal: it then returns nullopt on all ranks, and
  // stop_agreed() is true.
  std::optional<EvalReport> evaluate(const std::atomic<int>* signal);
  // Mean loss over all samples of `source`, observed by `watch` (may be null); stops as above.
  std::optional<EvalReport> evaluate(const DataSource& source, StepWatch* watch,
                                     const std::atomic<int>* signal = nullptr);
  // Checks whether a signal has come since the step, for example during a save; updates stop_agreed(). Collective.
  void poll_stop(const std::atomic<int>& signal);

  // Writes a checkpoint of this step under `root` and returns its directory. Collective.
  std::string save(const std::string& root, const SaveOptions& options) override;
  std::string save(const std::string& root) { return save(root, {}); }

  // Saves as above while training continues: returns as soon as this rank's part is copied. Collective.
  std::string save_in_background(BackgroundSaver& saver, const std::string& root,
                                 const SaveOptions& options) override;

  // Continues from the newest checkpoint under (or the one at) `path`, of the same model on any mesh and in any type
  // (rounded to nearest where that is narrower), or loads its weights only. With `new_optimizer` it continues without the
  // optimizer state. `other_batch`: the global batch may differ from the checkpoint's, as in a rehearsal of a smaller
  // step. Returns the differences from the configuration that wrote the checkpoint, one line each. Collective: a failure
  // of one rank (a damaged file, say) is an Error on all, after which another checkpoint may be loaded.
  std::vector<std::string> load(const std::string& path, LoadPart part = LoadPart::All,
                                bool new_optimizer = false, bool other_batch = false);

  // Shows every step, repeated ones included, to `watch` (null: none): for tests that make a step fail.
  void watch(StepWatch* watch) { watch_ = watch; }

  // Measures the matrix-product rate to which MFU refers, and keeps the largest one; until then MFU is 0. Collective.
  double measure_peak();

  // Names the parts that --enable-cuda-graph could not capture so far, and why; empty: everything was captured. The
  // same on all ranks: the note of the lowest rank with a failed capture, or else of the lowest rank with a note.
  const std::string& capture_note() const { return capture_note_; }

  // Sets the fingerprint of the training data, which checkpoints store and loaded checkpoints are compared with.
  void describe_data(const DataFingerprint& data) { data_ = &data; }

  // The evaluations of the run, which are part of its state; run_loop adds to them.
  BestEvaluation& best() { return best_; }
  // The losses of the run, which are part of its state.
  LossWatch& losses() { return losses_; }

  // On rank 0, a note on the products that --tune-products measured; empty: the file had all of them.
  const std::string& product_note() const { return product_note_; }

  // As in TrainingRun.
  int64_t steps_at_once() const { return batches_of_plan(run_, steps_done_); }
  ClockSpan step_time() const { return step_time_; }
  // After advance() threw because a loss or gradients were not finite: the step, counted from 1.
  std::optional<int64_t> failed_step() const { return failed_step_; }

  int64_t steps_done() const override { return steps_done_; }
  // As in TrainingRun.
  int64_t samples_of(int64_t steps) const { return run_.batch_sizes.samples_of(steps); }
  void check_replicas(const std::string& when) override;
  std::vector<NamedTensor> held_tensors() override;
  RunReport report();  // collective over the pipeline axis
  MemoryReport memory() const;
  // As memory(), with the activation memory that is allocated instead of the predicted one.
  MemoryReport held() const;
  const RankPlan& actions() const { return row(); }
  // The most bytes of off-loaded activations in memory at once: as counted in the last steps, and as planned.
  size_t activations_in_memory() const { return executor_->kept_blocks_in_memory(); }
  size_t planned_activations_in_memory() const { return activations_.kept_blocks; }
  Replica& replica() { return replica_; }
  const GradientBuffer& grads() const { return grads_; }
  const ShardedOptimizer& optimizer() const { return optimizer_; }

 private:
  class Window;

  // The plan with the additions for this rank's row.
  Plan make_plan();
  void make_executor();
  // On a device: runs the first-time work of a step while no other rank waits for this rank.
  void rehearse(int times);
  // --tune-products.
  void tune_products();
  void run_plan(const std::atomic<int>* signal);
  // Makes the plan for `batches` global batches, unless it exists.
  void prepare(int batches);
  // The micro-batches of this rank from the current position to the end of the run.
  ReadOrder read_order() const;
  // Runs the plan, up to the reduced gradients and sums_, which are summed over the ranks.
  void compute(ReadAhead& batches, StepWatch* watch);
  // Fills counts_ for the global batches of the next plan by reading them in advance: the losses of BERT and of modules
  // that predict further tokens need the counts of a whole global batch before its first micro-batch. Collective.
  void count_ahead();
  // Computes the last step's micro-batches again, before its update.
  void repeat(StepWatch& watch);
  // As `repeat`, without any overlap; throws Error if a bit differs.
  void repeat_without_overlap();
  // Compares the replicas before the current step's update if they are due (--check-replicas) and the update would hide
  // a difference.
  void compare_before_update();
  // Clips and applies the reduced gradients; returns their norm. If no token counts, or the norm is not finite and the
  // loss scale is dynamic, the weights stay unchanged on all ranks (sums and norm are the same on each). Throws Error
  // if the norm is not finite for another reason than the scale.
  double update(const LossSums& sums);
  FiniteCheckParts finite_check_parts();
  // Repeats the step to find the cause of a loss or norm that is not finite; throws an Error of kind Agreed.
  // Collective.
  [[noreturn]] void explain(double loss, double norm);
  double rate_of(int64_t step) const;   // learning rate; steps count from 0
  double decay_of(int64_t step) const;  // weight decay of a step, counted likewise
  // The samples of the updates before update `step`, by which rates count; batches from here to there have one size.
  int64_t samples_before(int64_t step) const;
  // Updates made before step `step`, by which learning rate and optimizer count, as in Megatron-LM.
  int64_t updates_before(int64_t step) const { return step - skipped_; }
  // The samples of a full global batch of the next steps, which is the size of the plan once that is prepared.
  int64_t batch_size() const { return run_.batch_sizes.at(consumed_samples_).size; }
  // Tokens of such a batch; the last batch of a run with --train-epochs may have fewer.
  int64_t tokens_per_step() const;
  // The number of samples in the global batch that follows the next `ahead` ones.
  int64_t samples_of_batch(int64_t ahead) const;
  // Writes the tokens of each source after `consumed` samples for a step of the last plan; the place of these counts.
  void count_sources(size_t step, int64_t consumed);
  std::span<int64_t> sources_of_step(size_t step);
  std::vector<std::string> size_lines() const;  // RunReport::batch_sizes
  // Fills reports_ from sums_ and the gradients' norms.
  void report_steps(std::span<const double> norms, double loss_scale, double seconds);
  int64_t eval_samples() const;
  std::optional<EvalReport> evaluate(const DataSource& source, int64_t samples, bool has_pairs,
                                     const std::atomic<int>* signal, StepWatch* watch);
  // State that all ranks share after a plan: whether one of them was asked to stop, so that all stop after the same
  // step, and the bytes that all have sent since `before`, this rank's earlier count.
  struct Agreement {
    bool stop = false;
    Traffic traffic;
    bool noted = false;  // some rank's executor has a note that was not shared yet
  };
  Agreement agree(bool stop, const Traffic& before);
  // Computes capture_note_ from all ranks' notes. Collective.
  void share_notes();
  double document_imbalance();  // see RunReport
  std::vector<MemoryReport> memory_of_pipeline();
  bool has_adapters() const { return config_.model.adapters.lora_rank.has_value(); }
  std::vector<NamedTensor> checkpoint_tensors(bool to_load);
  // Begins adapters that `from` does not have: leaves them out of `wanted`, and sets their magnitudes to the norms of its
  // weights.
  void begin_adapters(std::vector<NamedTensor>& wanted, CheckpointReader& from) const;
  std::vector<NamedTensor> tensors_to_save(const SaveOptions& options);
  CheckpointMeta checkpoint_meta() const;
  // Opens the data at the checkpoint's position; adds differences of the data to `changes`.
  void resume_at(const CheckpointMeta& meta, std::vector<std::string>& changes);
  std::vector<std::string> changes_since(const CheckpointMeta& meta) const;

  // This rank's row of the plan.
  const RankPlan& row() const;

  PretrainConfig config_;
  RunSpec run_;
  PlannedRuns plans_;  // those made before the run
  std::shared_ptr<const PlannedRun> planned_;
  Replica replica_;
  Plan plan_;
  GradientBuffer grads_;
  ShardedOptimizer optimizer_;
  GradNorm norm_;
  std::unique_ptr<BlockNorms> block_norms_;  // only with --log-block-grad-norms
  std::vector<double> block_grad_norms_;     // last step; empty: not measured
  std::unique_ptr<ParamNorm> param_norm_;    // only with --log-params-norm
  std::optional<double> params_norm_;        // after the last step
  std::unique_ptr<GradZeros> grad_zeros_;    // only with --log-num-zeros-in-grad
  std::optional<int64_t> num_zeros_;         // last step; absent: not counted
  LossScaler scaler_;
  int64_t expert_layers_;
  std::unique_ptr<ExpertLoads> loads_;  // only with experts
  ActivationMemory activations_;
  std::unique_ptr<Executor> executor_;
  std::optional<LaterLabels> later_labels_;  // only if the model reads later labels; then it is train_
  const DataSource& train_;
  const DataSource* valid_;
  const DataFingerprint* data_ = nullptr;
  BestEvaluation best_{"loss", BestEvaluation::Better::Lower};
  LossWatch losses_;
  std::unique_ptr<Window> window_;      // only with an asynchronous schedule
  std::unique_ptr<ReadAhead> batches_;  // made at the first step, when the position is known
  std::vector<LossSums> sums_;          // [global batch of the last plan]
  std::vector<LabelCount> counts_;      // [global batch of the last plan]; empty if not needed
  std::vector<StepReport> reports_;     // [step of the last plan]
  std::vector<MeanTerms> terms_;        // [step of the last plan]
  BatchBuffer valid_batch_;
  StepWatch* watch_ = nullptr;
  int64_t checked_ = 0;  // steps repeated without overlap so far
  double peak_flops_ = 0;
  int64_t steps_done_ = 0;
  int64_t consumed_samples_ = 0;
  int64_t skipped_ = 0;                 // steps done without an update (StepSkip)
  int64_t skipped_samples_ = 0;         // their samples
  std::vector<std::string> sources_;    // names of the sources of train_
  std::vector<int64_t> source_tokens_;  // [step of the last plan][source], see StepReport
  // What the loaded checkpoint keeps of the Hugging Face folder that the model came from; null: nothing.
  nlohmann::json hugging_face_;
  // With adapters: where the frozen weights are (models/adapters/frozen_weights.h); null: not loaded yet.
  nlohmann::json frozen_weights_;
  int64_t optimizer_began_ = 0;  // updates before the optimizer state began (--no-load-optim)
  bool stop_agreed_ = false;
  ClockSpan step_time_;
  std::optional<int64_t> failed_step_;
  std::string capture_note_;
  std::string product_note_;
  std::string shared_note_;  // this rank's note when notes were last shared
};

}  // namespace trifold
