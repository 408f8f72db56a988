#include "launch/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/bytes_text.h"
#include "core/printable.h"
#include "files/output_files.h"
#include "launch/say.h"
#include "launch/stage_lines.h"
#include "monitor/language_records.h"
#include "monitor/perfetto_trace.h"

namespace trifold::launch {

namespace {

// "token" of "tokens".
std::string_view single(std::string_view unit) { return unit.substr(0, unit.size() - 1); }

// The first line, with its middle left out if it is long.
std::string shortened(const std::string& plan) {
  std::string line = plan.substr(0, plan.find('\n'));
  if (line.size() <= 100) return line;
  return line.substr(0, 60) + " ... " + line.substr(line.size() - 35);
}

// The memory of the pipeline ranks that need most and least.
std::string memory_text(const std::vector<MemoryReport>& ranks) {
  const auto less = [](const MemoryReport& a, const MemoryReport& b) {
    return a.predicted_total() < b.predicted_total();
  };
  const auto [least, most] = std::minmax_element(ranks.begin(), ranks.end(), less);
  std::string whose = "a rank";
  if (less(*least, *most))
    whose = fmt::format("on pipeline rank {}, {} on rank {}", most - ranks.begin(),
                        bytes_text(least->predicted_total()), least - ranks.begin());
  const std::string workspace =
      most->workspace == 0 ? "" : fmt::format(", work space {}", bytes_text(most->workspace));
  const std::string file =
      most->offloaded == 0 ? "" : fmt::format("; {} off-loaded", bytes_text(most->offloaded));
  return fmt::format("memory      {} {}: parameters {}, gradients {}, optimizer {}, activations {}{}{}",
                     bytes_text(most->predicted_total()), whose, bytes_text(most->parameters),
                     bytes_text(most->gradients), bytes_text(most->optimizer),
                     bytes_text(most->predicted_activations), workspace, file);
}

std::string steps_text(const RunReport& report) {
  std::string text = fmt::format("steps       {} to {}", report.first_step, report.last_step);
  const PassesReport& passes = report.passes;
  if (passes.passes > 0)
    text += fmt::format(": {} pass{} over {} samples, the last step takes {}", passes.passes,
                        passes.passes == 1 ? "" : "es", passes.samples / passes.passes, passes.last_batch);
  return text;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::llround(std::max(0.0, seconds)));
  if (whole >= 3600) return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

}  // namespace

ProgressLines::ProgressLines(const LogConfig& config, std::FILE* out, Monitor& monitor)
    : config_(config), out_(out), terminal_(isatty(fileno(out)) != 0), monitor_(monitor) {}

void ProgressLines::write_event(std::string_view event, nlohmann::ordered_json values) {
  write([&] { return RunRecord{.step = step_, .event = std::string(event), .values = std::move(values)}; });
}

void ProgressLines::print_line(const std::string& text) {
  say(out_, fmt::format("{}{}\n", line_open_ ? "\r\033[K" : "", printable_message(text)));
  line_open_ = false;
}

void ProgressLines::finish() {
  if (!unshown_.empty()) print_line(unshown_);
  unshown_.clear();
}

void ProgressLines::begin(const StartReport& report, std::string_view ranks, const Command& command) {
  first_step_ = report.first_step;
  last_step_ = report.last_step;
  step_ = first_step_ - 1;
  write([&] { return record_of_start(report, command.name, command.options); });
  if (config_.watch.trace) start_record_ = record_of_start(report, command.name, command.options).values;
  start_ = std::chrono::steady_clock::now();
  print_line(fmt::format("{:<12}{}; operations {}", ranks, report.mesh, report.operations));
  if (!monitor_.metrics_url().empty()) print_line("metrics     " + monitor_.metrics_url());
  for (const std::string& line : report.processes) print_line("processes   " + line);
  for (const std::string& line : report.changes) print_line("changed     " + line);
}

bool ProgressLines::show_step(int64_t step, const std::string& text) {
  unshown_.clear();
  step_ = step;
  if (step % config_.log_interval == 0 || step == last_step_) {
    print_line(text);
    return true;
  }
  unshown_ = text;
  if (!terminal_) return false;
  say(out_, "\r\033[K" + text);
  line_open_ = true;
  return false;
}

std::string ProgressLines::remaining(int64_t step) const {
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  const auto done = static_cast<double>(step - first_step_ + 1);
  return duration_text(elapsed / done * static_cast<double>(last_step_ - step));
}

void ProgressLines::tell_saved(int64_t step, const std::string& directory) {
  finish();
  write([&] { return RunRecord{.step = step, .event = "saved", .values = {{"path", directory}}}; });
  print_line("saved       " + directory);
}

void ProgressLines::tell_warning(const std::string& text) {
  finish();
  write_event("warning", {{"text", text}});
  print_line("WARNING     " + text);
}

void ProgressLines::tell_early_stop(const BestEvaluation& best) {
  finish();
  write_event("early_stop", {{"text", best.text()}});
  print_line(fmt::format("early stop  {}", best.text()));
}

void ProgressLines::tell_incident(const Incident& incident) {
  finish();
  write([&] { return RunRecord{.step = incident.step, .event = incident.event, .values = incident.values}; });
  print_line("WARNING     " + incident.text);
}

void ProgressLines::tell_trace(const FlightFiles& files) {
  const std::string& file = *config_.watch.trace;
  const Planned planned = planned_step(start_record_);
  write_file("--trace", file, perfetto_trace(all_tracks(files, planned)));
  finish();
  print_line(
      fmt::format("trace       {} of {} rank{}", file, files.logs.size(), files.logs.size() == 1 ? "" : "s"));
  if (!planned.picture)
    tell_warning(fmt::format("--trace: the planned step is missing, because {}", planned.reason));
}

void Progress::on_start(const RunReport& report) {
  unit_ = report.unit;
  loss_unit_ = report.loss_unit;
  begin(report, "mesh", command_);
  print_line(fmt::format("model       {} parameters, {} FLOP a sample (forward and backward)",
                         count_text(static_cast<double>(report.parameters)),
                         count_text(report.train_flops_per_sample)));
  if (report.stages.size() > 1)
    for (const std::string& line : stage_lines(report.stages, static_cast<int>(report.memory.size())))
      print_line(line);
  print_line(memory_text(report.memory));
  if (report.document_imbalance > 0)
    print_line(fmt::format(
        "documents   the busiest context rank has {:.2f} times the mean number of query-key pairs in the "
        "samples of the first step",
        report.document_imbalance));
  for (const std::string& line : report.param_factors) print_line("parameters  " + line);
  for (const std::string& line : report.data) print_line("data        " + line);
  for (const std::string& line : report.batch_sizes) print_line("batch       " + line);
  for (const std::string& line : report.widths) print_line("width       " + line);
  print_line("plan        " + shortened(report.plan));
  print_line(
      fmt::format("peak        {:.1f} GFLOP/s of matrix products, measured now on these cores; "
                  "MFU is the rate of model flops (causal attention counted half) over it",
                  report.peak_flops / 1e9));
  print_line(steps_text(report));
  if (report.eval_samples < report.eval_samples_asked)
    print_line(
        fmt::format("evaluation  {} samples each time, the whole validation part: --eval-iters asks for {}, "
                    "but no sample is used twice",
                    report.eval_samples, report.eval_samples_asked));
}

namespace {

constexpr size_t kMostSampleBytes = 400;

std::string text_of_later_losses(const StepReport& report) {
  std::string text;
  for (int k = 0; k < report.later_losses_count; ++k)
    if (std::isfinite(report.later_losses[static_cast<size_t>(k)]))
      text += fmt::format("mtp loss {} {:.4f}  ", k + 1, report.later_losses[static_cast<size_t>(k)]);
  return text;
}

// "reward chosen 0.012  reward margin 0.034  "
std::string text_of_terms(std::span<const MeanTerms::value_type> terms) {
  std::string text;
  for (const auto& [name, mean] : terms) {
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    text += fmt::format("{} {:.4f}  ", words, mean);
  }
  return text;
}

// The busiest expert of all blocks, and the dropped choices of all blocks together.
std::string text_of_loads(const StepReport& report) {
  if (report.expert_loads.empty()) return "";
  const double most = *std::max_element(report.expert_loads.begin(), report.expert_loads.end());
  const std::string rounds =
      report.expert_rounds > 1 ? fmt::format("in {} rounds  ", report.expert_rounds) : "";
  const std::span<const double> blocks = report.experts_dropped;
  const std::string dropped =
      blocks.empty() ? ""
                     : fmt::format("dropped {:.0f}  ", std::accumulate(blocks.begin(), blocks.end(), 0.0));
  return fmt::format("load {:.2f}  {}{}", most, rounds, dropped);
}

}  // namespace

std::string Progress::describe(const StepReport& report) const {
  const std::string scale = report.loss_scale == 1 ? "" : fmt::format("loss scale {:g}  ", report.loss_scale);
  const std::string routers = report.router_balance ? fmt::format("balance {:.3f}  router z {:.3f}  ",
                                                                  *report.router_balance, report.router_z)
                                                    : "";
  const std::string loss =
      report.skip == StepSkip::NoTokens ? "no loss" : fmt::format("loss {:.4f}", report.loss);
  const std::string skipped = report.skipped() ? fmt::format("skipped: {}  ", reason_of(report.skip)) : "";
  const std::string zeros = report.num_zeros ? fmt::format("zeros {}  ", *report.num_zeros) : "";
  const std::string params =
      report.params_norm ? fmt::format("params norm {:.3f}  ", *report.params_norm) : "";
  return fmt::format(
      "step {:>6}/{}  {}  {}{}{}grad norm {:.3f}  {}{}lr {:.3e}  {}{}{} {}/s  MFU {:.0f}%  ETA {}",
      report.step, last_step(), loss, text_of_later_losses(report) + text_of_terms(report.terms), routers,
      text_of_loads(report), report.grad_norm, zeros, params, report.lr, scale, skipped,
      rate_text(report.tokens_per_second), unit_, 100 * report.mfu, remaining(report.step));
}

void Progress::on_step(const StepReport& report) {
  write([&] { return record_of(report); });
  if (report.skip == StepSkip::Asked)
    return print_line(fmt::format("step {:>6}/{}  skipped: samples {}-{} are passed over", report.step,
                                  last_step(), report.consumed_samples - report.samples,
                                  report.consumed_samples - 1));
  if (report.skip == StepSkip::NoTokens)
    print_line(fmt::format("step {:>6}/{}  skipped: every {} of the global batch is masked out of the loss",
                           report.step, last_step(), single(loss_unit_)));
  if (report.skip == StepSkip::Overflow)
    print_line(fmt::format("step {:>6}/{}  skipped: gradients overflowed with loss scale {:g}; {}",
                           report.step, last_step(), report.loss_scale,
                           report.next_loss_scale == report.loss_scale
                               ? "it is kept for now"
                               : fmt::format("it is {:g} from here on", report.next_loss_scale)));
  show_step(report.step, describe(report));
}

void Progress::on_eval(const EvalReport& report) {
  write([&] { return record_of(report); });
  const std::string of = last_step() > 0 ? fmt::format("/{}", last_step()) : "";  // no run: no last step
  if (report.tokens == 0)
    return print_line(
        fmt::format("step {:>6}{}  no validation loss: every {} of the validation samples is masked "
                    "out of the loss",
                    report.step, of, single(report.unit)));
  print_line(fmt::format("step {:>6}{}  validation loss {:.4f}  {}({} {} in {:.1f} s)", report.step, of,
                         report.loss, text_of_terms(report.terms), report.tokens, report.unit,
                         report.seconds));
}

void Progress::on_sample(int64_t step, const std::string& text) {
  write_event("sample", {{"text", text}});
  print_line(fmt::format("step {:>6}/{}  sample: {}", step, last_step(), printable(text, kMostSampleBytes)));
}

void Progress::on_scores(int64_t step, const Scores& scores) {
  write([&] { return record_of(step, scores); });
  std::string text;
  for (const auto& [name, value] : scores) text += fmt::format("  {} {:.4f}", name, value);
  print_line(fmt::format("step {:>6}{}", step, text));
}

void Progress::on_saved(int64_t step, const std::string& directory) { tell_saved(step, directory); }

void Progress::on_warning(const std::string& text) { tell_warning(text); }

void print_warning(const std::string& text) { say(stderr, fmt::format("WARNING     {}\n", text)); }

}  // namespace trifold::launch
