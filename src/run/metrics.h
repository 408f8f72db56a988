// The reports of a run: plain values, and the interface that receives them. Nothing under src/ prints; the
// command line implements RunObserver.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "data/batch.h"
#include "layout/memory_report.h"
#include "layout/stage_report.h"
#include "run/best_evaluation.h"
#include "run/flight/flight_verdict.h"

namespace trifold {

// Why a step left the model as it was.
enum class StepSkip {
  None,      // the step changed the model
  Overflow,  // gradients overflowed with the loss scale
  NoTokens,  // all tokens are masked out of the loss
  Asked,     // its samples were to be skipped (run/health/loss_watch.h); it was not computed
};

// The shown loss terms of a model's blocks by name (ReportList::shown_terms in nn/reports.h), as means over the weights of
// the loss.
using MeanTerms = std::vector<std::pair<std::string, double>>;

// One training step; everything except times and rates is the same on every rank. Losses are means over the tokens (for
// a recommender, the samples) of the global batch, before the update.
struct StepReport {
  int64_t step = 0;  // counts from 1
  int64_t consumed_samples = 0;
  int64_t samples = 0;   // samples of the step; padding does not count
  double loss = 0;       // NaN if no token counts
  double grad_norm = 0;  // before clipping; for a recommender the norm of the MLPs, 0 without clipping
  double lr = 0;         // for a recommender the rate of the MLPs
  double step_seconds = 0;
  // The fields below are set only for transformers. Mixtures of experts report means over tokens and blocks, without
  // coefficients: the balance loss, 1 if all experts are used equally, and the z-loss of the routers' logits
  // (nn/experts.h).
  std::optional<double> router_balance;
  double router_z = 0;
  // The mean losses of the modules that predict further tokens; the first `later_losses_count`.
  std::array<double, kMostLaterLabels> later_losses = {};
  int later_losses_count = 0;
  std::span<const MeanTerms::value_type> terms = {};  // valid until the next step
  // Only on processors. `expert_loads`: for each block with experts, the tokens of its most chosen expert over the
  // mean. `experts_dropped`: for each of these blocks, the dropped choices, if there is a capacity
  // (nn/expert_capacity.h). Both are valid until the next step. `expert_rounds`: the largest number of rounds in which
  // rows were exchanged (nn/exchanged_rows.h).
  std::span<const double> expert_loads = {};
  std::span<const double> experts_dropped = {};
  int64_t expert_rounds = 1;
  // [block of the model] Gradient norms before clipping, with --log-block-grad-norms if the step changed the model;
  // valid until the next step.
  std::span<const double> block_grad_norms = {};
  // With --log-params-norm: the L2 norm of all parameters after the step.
  std::optional<double> params_norm;
  // With --log-num-zeros-in-grad, if the step changed the model: the elements of the model whose gradient is zero.
  std::optional<int64_t> num_zeros;
  // With a weight decay that changes: its value in the step.
  std::optional<double> weight_decay;
  // With --data-schedule: the tokens of each path (RunReport::sources) consumed since the beginning, this step
  // included; valid until the next step.
  std::span<const int64_t> source_tokens = {};
  std::span<const std::string> sources = {};  // the names
  double loss_scale = 1;
  double next_loss_scale = 1;   // loss scale of the next step
  int64_t tokens = 0;           // tokens of the step on all ranks; padding does not count
  int64_t sent_bytes = 0;       // sent by all ranks together, counted as in comm/communicator.h
  int64_t left_node_bytes = 0;  // the part of sent_bytes that went to another node
  double tokens_per_second = 0;
  // Model flops per second (matrix products; causal attention counts half, recomputation not at all, shorter samples in
  // proportion to their tokens) as a share of the matrix-product rate measured on the same cores when the run started.
  double mfu = 0;
  StepSkip skip = StepSkip::None;

  bool skipped() const { return skip != StepSkip::None; }
  double samples_per_second() const { return static_cast<double>(samples) / step_seconds; }
};

// Further metrics of a task, by name.
using Scores = std::vector<std::pair<std::string, double>>;

// The numbers of labels of a cross entropy (nn/class_reports.h): of all that count, of labels that are the likeliest
// class, and of labels among the K likeliest classes.
struct ClassShare {
  std::string name;  // the node's
  double labels = 0, likeliest = 0, among = 0;
};

struct EvalReport {
  int64_t step = 0;
  double loss = 0;     // NaN if no token counts
  int64_t tokens = 0;  // tokens that count
  double seconds = 0;
  const char* unit = "tokens";  // unit over which the loss is a mean
  std::vector<ClassShare> classes = {};
  std::optional<int64_t> top_k = {};  // K, if shares among the K likeliest are asked for
  MeanTerms terms = {};
};

// A run of whole passes over the training data.
struct PassesReport {
  int64_t passes = 0;  // 0: the run has a number of steps instead
  int64_t samples = 0;
  int64_t last_batch = 0;  // samples of the last global batch
};

// The description of a run of any kind, reported once before the first step.
struct StartReport {
  std::string mesh;                    // "dp 2 x pp 1 x tp 1, thread ranks, 1 thread each"
  std::vector<std::string> processes;  // the processes of the ranks, if there are several (run/nodes.h)
  std::string operations;              // instruction set of the operation table
  // Differences between a resumed run and the one that wrote the checkpoint, a line each.
  std::vector<std::string> changes;
  int64_t parameters = 0;  // parameters of the whole model
  double train_flops_per_sample = 0;
  double peak_flops = 0;     // measured matrix-product rate of all ranks together, flop/s; 0: not measured
  size_t planned_bytes = 0;  // memory of the rank that needs most, as far as this process knows
  int64_t first_step = 1;
  int64_t last_step = 0;
};

// The description of a transformer's run.
struct RunReport : StartReport {
  std::vector<StageReport> stages;
  std::vector<MemoryReport> memory;  // [pipeline rank]
  PassesReport passes;
  // Samples of one evaluation, and the samples of --eval-iters before the limit of the validation split. 0: none.
  int64_t eval_samples = 0;
  int64_t eval_samples_asked = 0;
  std::string plan;               // text form, one line per rank
  std::vector<std::string> data;  // the files that are read and the files that are ignored, a line each
  std::vector<std::string> param_factors;  // what --lr-mult and --wd-mult match, a line each
  std::vector<std::string> sources;        // names of the paths of --data-schedule
  std::vector<std::string>
      widths;  // with --mup-base-hidden-size: its rules with this model's values, a line each
  std::vector<std::string> batch_sizes;  // with --rampup-batch-size: the sizes and their steps, a line each
  // What rates count and losses are means over, for messages.
  const char* unit = "tokens";
  const char* loss_unit = "tokens";
  // With context ranks and documents that do not attend to each other: the query-key pairs of the busiest context rank
  // in the samples of this data rank's first step, over the mean. 0: not applicable, or not read yet.
  double document_imbalance = 0;
};

// Something that happened to a run besides its steps: a rank that has become slow, a spike of the loss.
struct Incident {
  int64_t step = 0;
  std::string event;                                                 // "slow_rank"
  std::string text;                                                  // a message for the user
  nlohmann::ordered_json values = nlohmann::ordered_json::object();  // values for programs
};

// Observes checkpoints and warnings in any kind of run.
class SaveObserver {
 public:
  virtual ~SaveObserver() = default;
  // Called after the commit: the checkpoint is on the disk.
  virtual void on_saved(int64_t step, const std::string& directory) = 0;
  // The run ends here because of --early-stop-patience.
  virtual void on_early_stop(const BestEvaluation& /*best*/) {}
  // A problem after which the run continues.
  virtual void on_warning(const std::string& text) = 0;
  virtual void on_incident(const Incident& incident) { on_warning(incident.text); }
  // The steps of --trace are done: what every rank did in them. An Error is a warning.
  virtual void on_trace(const FlightFiles& /*files*/) {}
};

class RunObserver : public SaveObserver {
 public:
  virtual void on_start(const RunReport& report) = 0;
  virtual void on_step(const StepReport& report) = 0;
  virtual void on_eval(const EvalReport& report) = 0;
  // Called after the on_eval of the same step with --sample-prompt: the prompt and the model's continuation.
  virtual void on_sample(int64_t /*step*/, const std::string& /*text*/) {}
  // Called after the on_eval of the same step if the data belong to a task.
  virtual void on_scores(int64_t /*step*/, const Scores& /*scores*/) {}
};

}  // namespace trifold
