#include <fmt/core.h>

#include "config/commands/json.h"
#include "core/bytes_text.h"
#include "launch/click_lines.h"
#include "launch/commands.h"
#include "launch/faults/fault_test.h"
#include "launch/placement_lines.h"
#include "launch/progress.h"
#include "launch/stage_lines.h"
#include "launch/training.h"
#include "monitor/click_records.h"
#include "recommend/recommend.h"

namespace trifold::launch {

namespace {

class ClickProgress final : public RecommendObserver, public ProgressLines {
 public:
  ClickProgress(const RecommendConfig& config, std::FILE* out, Monitor& monitor)
      : ProgressLines(config.log, out, monitor),
        command_{"recommend", to_json(config)},
        clips_(config.training.clip_grad > 0) {}

  void on_start(const RecommendReport& report) override {
    begin(report, "ranks", command_);
    best_auc_ = report.best_auc;
    line("model       {} parameters, {} FLOP a sample (forward and backward)",
         count_text(static_cast<double>(report.parameters)), count_text(report.train_flops_per_sample));
    line("data        {} samples to train on ({} steps an epoch), {} to evaluate on", report.train_samples,
         report.steps_per_epoch, report.valid_samples);
    for (const std::string& note : report.notes) line("data        {}", note);
    if (best_auc_)
      line("best AUC    {:.4f}: no model ranks these synthetic clicks better on average", *best_auc_);
    for (const std::string& each : placement_lines(report.tables, report.placement, report.loads))
      line("tables      {}", each);
    line("memory      {} on rank 0: {}", bytes_text(report.memory.total()), parts_text(report.memory));
    line("steps       {} to {}", report.first_step, report.last_step);
  }

  void on_rows(const RowCache::Counts& rows) override {
    step_rows_ = {rows.wanted - rows_.wanted, rows.found - rows_.found, rows.read - rows_.read};
    rows_ = rows;
  }

  void on_step(const StepReport& step) override {
    if (!step.skipped()) {
      samples_ += step.samples;
      seconds_ += step.step_seconds;
    }
    write([&] { return record_of_clicks(step, clips_, rows_.wanted > 0 ? &step_rows_ : nullptr); });
    if (step.skip == StepSkip::Asked)
      return line("step {:>6}/{}  skipped: samples {}-{} are passed over", step.step, last_step(),
                  step.consumed_samples - step.samples, step.consumed_samples - 1);
    const std::string norm = clips_ ? fmt::format("grad norm {:.3f}  ", step.grad_norm) : "";
    const std::string text =
        fmt::format("step {:>6}/{}  loss {:.5f}  {}lr {:.3e}  {}{} samples/s  ETA {}", step.step, last_step(),
                    step.loss, norm, step.lr, found_text(),
                    rate_text(static_cast<double>(samples_) / seconds_), remaining(step.step));
    if (!show_step(step.step, text)) return;
    samples_ = 0;
    seconds_ = 0;
    shown_rows_ = rows_;
  }

  void on_eval(const ClickEvaluation& evaluation) override {
    write([&] { return record_of(evaluation); });
    for (const LabelScores& label : evaluation.labels) {
      const ClickScores& scores = label.scores;
      std::string best;
      if (best_auc_ && scores.auc) best = fmt::format(" (best possible {:.4f})", *best_auc_);
      line("step {:>6}/{}  {}AUC {}{}  {}  ({} samples in {:.1f} s)", evaluation.step, last_step(),
           label_text(label), score_text(scores.auc), best, scores_text(scores), scores.samples,
           evaluation.seconds);
    }
  }

  void on_saved(int64_t step, const std::string& directory) override { tell_saved(step, directory); }

  void on_warning(const std::string& text) override { tell_warning(text); }
  void on_incident(const Incident& incident) override { tell_incident(incident); }
  void on_trace(const FlightFiles& files) override { tell_trace(files); }

  void on_early_stop(const BestEvaluation& best) override { tell_early_stop(best); }

  void on_target(int64_t step, double auc, double target) override {
    write_event("target", {{"auc", auc}, {"target_auc", target}});
    line("target      AUC {:.5f} after step {} reaches --target-auc {:.5f}", auc, step, target);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    print_line(fmt::format(format, std::forward<Args>(args)...));
  }

  // The share of requested rows of tables in files that were in memory, since the last shown step.
  std::string found_text() const {
    const int64_t wanted = rows_.wanted - shown_rows_.wanted;
    if (wanted == 0) return {};
    return fmt::format("in memory {:.1f} %  ", 100 * static_cast<double>(rows_.found - shown_rows_.found) /
                                                   static_cast<double>(wanted));
  }

  Command command_;
  bool clips_;
  // Counts so far, in the last step, and at the last shown step.
  RowCache::Counts rows_, step_rows_, shown_rows_;
  std::optional<double> best_auc_;
  int64_t samples_ = 0;  // since the last shown step
  double seconds_ = 0;
};

}  // namespace

int run(const RecommendConfig& config, Ranks& ranks) {
  const std::unique_ptr<Fault> fault = Fault::from_environment();
  RecommendJob job;
  ranks.agree([&] {
    if (fault) fault->at_start(mpi_launch_rank());
    job = prepare(config);
  });
  ranks.compare(job.terms);
  if (fault) fault->attach(job);
  Monitor monitor = open_monitor(ranks, job.config.log, job);
  ClickProgress progress(job.config, stderr, monitor);
  const auto train = [&](Communicator& world, const std::atomic<int>& signal) {
    if (fault) fault->at_start(world.rank());
    return recommend(world, job, progress, signal);
  };
  return train_on_ranks(ranks, job, job.config.mesh, job.config.checkpoint, progress, train);
}

}  // namespace trifold::launch
