#include "config/subjects/log.h"

#include <utility>

#include "config/options/bounds.h"

namespace trifold {

void add_eval(OptionTable& table, EvalConfig& eval) {
  table.group("Evaluation");
  table.add("eval-interval", &eval.eval_interval, "Evaluate every N steps.")
      .range(1, kMaxCount)
      .absent("no evaluation while training")
      .no_effect_with({"eval-iters", "0"}, "which disables evaluation")
      .as_note();
  table
      .add("eval-iters", &eval.eval_iters,
           "Batches per evaluation, the same ones each time, "
           "at most one pass over the validation data; 0: no evaluation.")
      .range(0, kMaxCount)
      .only_with("eval-interval")
      .as_note()
      .unless({"eval-iters", "0"});
  add_early_stop(table, eval.early_stop_patience);
}

void add_early_stop(OptionTable& table, std::optional<int64_t>& patience) {
  table
      .add("early-stop-patience", &patience,
           "Stop, with a checkpoint, after N evaluations in a row "
           "that were no better than the best before them.")
      .range(1, kMaxCount)
      .absent("train to the end")
      .of_execution()
      .only_with({"eval-interval", AtLeast{1}}, "because the run is not evaluated while it trains",
                 "give --eval-interval N, and samples to evaluate on")
      .no_effect_with({"eval-iters", "0"}, "which disables evaluation", "give at least --eval-iters 1");
}

void add_sample_prompt(OptionTable& table, EvalConfig& eval) {
  constexpr std::string_view kParts = "because a rank that holds the whole model continues the text";
  table
      .add(
          "sample-prompt", &eval.sample_prompt,
          "At every evaluation, report how the model continues this text by 64 tokens, the likeliest one each time. "
          "Rank 0 computes the whole text for each token while the others wait; the plan does not count the memory "
          "that this needs.")
      .takes("TEXT")
      .absent("none")
      .of_execution()
      .only_with({"eval-interval", AtLeast{1}}, "because texts are reported at evaluations")
      .no_effect_with({"eval-iters", "0"}, "which disables evaluation")
      .excludes({"tensor-model-parallel-size", AtLeast{2}}, kParts)
      .excludes({"pipeline-model-parallel-size", AtLeast{2}}, kParts)
      .excludes({"context-parallel-size", AtLeast{2}}, kParts)
      .excludes({"expert-model-parallel-size", AtLeast{2}}, kParts)
      .excludes({"expert-tensor-parallel-size", AtLeast{2}}, kParts)
      .excludes({"zero-stage", "3"}, kParts)
      .excludes("auto-layout", "because its layout may divide the model among ranks");
}

void add_reports(OptionTable& table, LogConfig& log) {
  table.group("Logging");
  table.add("log-interval", &log.log_interval, "Report progress every N steps.")
      .range(1, kMaxCount)
      .of_execution();
  table.add("log-json", &log.log_json, "Append one JSON object per step to this file.")
      .names("FILE", FileUse::Appended)
      .absent("none")
      .of_host()
      .of_execution();
  table
      .add(
          "tensorboard-dir", &log.tensorboard_dir,
          "Write the numbers of every step and evaluation, and texts, to event files of TensorBoard in this folder.")
      .names("DIR", FileUse::Filled)
      .absent("none")
      .of_host()
      .of_execution();
  table
      .add(
          "metrics-port", &log.metrics_port,
          "Answer Prometheus at this port of rank 0's host, at /metrics; 0: at a free port, which is printed.")
      .range(0, 65535)
      .absent("none")
      .of_host()
      .of_execution();
  table
      .add("metrics-address", &log.metrics_address,
           "IP address at which --metrics-port is open; 0.0.0.0: all.")
      .takes("ADDRESS")
      .of_host()
      .of_execution()
      .only_with("metrics-port")
      .as_note();
}

namespace {

void add_watch(OptionTable& table, WatchConfig& watch) {
  table
      .add("timeout-factor", &watch.timeout_factor,
           "Shorten the time-out to this multiple of the longest of the last steps, evaluations or saves, "
           "once a run has had some of them; 0: never shorten it. The start always has the whole time-out.")
      .range(0, 1e6)
      .of_execution();
  table
      .add("timeout-floor-seconds", &watch.timeout_floor_seconds,
           "Shortest time-out to which --timeout-factor may lead.")
      .range(0.001, 31'536'000)
      .of_execution()
      .no_effect_with({"timeout-factor", "0"}, "with which the time-out is not shortened")
      .as_note();
  table
      .add(
          "straggler-interval", &watch.straggler_interval,
          "Every N steps, compare the time that each rank needs without waiting for others, and name a rank that "
          "needs 1.3 times its peers' median or more in 13 of 16 steps; 0: never. Ranks on a GPU are compared by "
          "their hosts alone.")
      .range(0, 1 << 16)
      .of_execution();
  table
      .add(
          "on-loss-spike", &watch.on_loss_spike,
          "Reaction to a loss far above the last 64: end the run, or return to the last checkpoint and skip the "
          "samples up to the spike.")
      .needs("save", "because the run returns to a checkpoint")
      .only_for("rollback")
      .needs("save-interval", "because the run returns to a checkpoint")
      .only_for("rollback")
      .excludes({"schedule", "pipedream|pipedream-2bw"}, "because several of its steps are computed together")
      .only_for("rollback")
      .excludes("no-save-optim", "because the run returns to a checkpoint with its optimizer state")
      .only_for("rollback");
  table
      .add(
          "loss-spike-factor", &watch.loss_spike_factor,
          "A loss is a spike if it exceeds the median of the last 64 by this many times their spread (1.4826 times "
          "the median absolute deviation, at least 0.1 % of the median).")
      .positive()
      .no_effect_with({"on-loss-spike", "ignore"}, "with which spikes are ignored");
  table
      .add("loss-spike-skip", &watch.loss_spike_skip,
           "Steps, up to that of the spike, whose samples are skipped after a rollback.")
      .range(1, kMaxCount)
      .no_effect_with(When("on-loss-spike", "ignore").or_when("on-loss-spike", "stop"),
                      "without --on-loss-spike rollback");
  table
      .add("iterations-to-skip", &watch.iterations_to_skip,
           "Steps that are passed over: their samples are consumed, and weights and learning rate stay.")
      .takes("N...")
      .excludes({"schedule", "pipedream|pipedream-2bw"},
                "because several of its steps are computed together");
  table
      .add(
          "trace", &watch.trace,
          "Write what every rank does in a few steps (actions, collectives, messages, copies), and the planned "
          "step beside it, to this file for Perfetto. Each event takes about 150 bytes until the last of these "
          "steps, after which the ranks wait until the file is written.")
      .writes("FILE", {trace_mark()})
      .absent("none")
      .of_all_hosts()
      .of_execution();
  table.add("trace-from", &watch.trace_from, "The first step of --trace.")
      .range(1, kMaxCount)
      .absent("the third step of this start, or an earlier one if the run ends soon")
      .of_execution()
      .only_with("trace")
      .as_note();
  table.add("trace-steps", &watch.trace_steps, "Number of steps of --trace.")
      .range(1, 1000)
      .of_execution()
      .only_with("trace")
      .as_note();
}

}  // namespace

void add_log(OptionTable& table, LogConfig& log) {
  add_reports(table, log);
  add_watch(table, log.watch);
  table
      .add("check-overlap", &log.check_overlap,
           "Compute the first N steps twice, once without overlap, and end the run if a bit differs.")
      .range(0, kMaxCount)
      .only_with(When("ranks", AtLeast{2}).or_when("device", "cuda"),
                 "because with one rank on a CPU nothing overlaps", "leave it out, or give several --ranks");
}

void add_model_numbers(OptionTable& table, LogConfig& log) {
  table
      .add("log-block-grad-norms", &log.log_block_grad_norms,
           "Also report the gradient norm of every block of the model in every step.")
      .of_execution();
  table
      .add("log-params-norm", &log.log_params_norm,
           "Also report the L2 norm of all trained parameters after every step.")
      .of_execution();
  table
      .add("log-num-zeros-in-grad", &log.log_num_zeros_in_grad,
           "Also report in every step how many elements of the model have a gradient of zero.")
      .of_execution();
}

Option& add_seed(OptionTable& table, uint64_t& seed, std::string help) {
  return table.add("seed", &seed, std::move(help));
}

}  // namespace trifold
