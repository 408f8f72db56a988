// Reports the progress of a run as text and as records (monitor/record.h): ProgressLines for runs of any kind, Progress
// for language models. On a terminal one line is updated in place; otherwise a plain line is printed every log_interval
// steps. A record is written for every step.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "config/fields/config.h"
#include "monitor/monitor.h"
#include "run/metrics.h"

namespace trifold::launch {

class ProgressLines {
 public:
  // What runs, for the record of its start: the command, and its options by name.
  struct Command {
    std::string name;
    nlohmann::json options;
  };

  // Prints to `out` and writes records to `monitor`; both must outlive this object.
  ProgressLines(const LogConfig& config, std::FILE* out, Monitor& monitor);
  virtual ~ProgressLines() { finish(); }
  ProgressLines(const ProgressLines&) = delete;
  ProgressLines& operator=(const ProgressLines&) = delete;

  // Ends the line that is updated in place; the last step is always shown.
  void finish();

 protected:
  // Records the start of the run, prints the first lines of every run, beginning with `ranks`, and starts the clock of
  // `remaining`.
  void begin(const StartReport& report, std::string_view ranks, const Command& command);
  int64_t last_step() const { return last_step_; }
  void print_line(const std::string& text);  // prints permanently
  // Shows the line of a step: permanently every log_interval steps and after the last one; other steps are shown on a
  // terminal until the next. Returns whether the line is permanent.
  bool show_step(int64_t step, const std::string& text);
  // The time until the last step: "1:02:03".
  std::string remaining(int64_t step) const;
  // Writes the record that `make` returns, if it is wanted.
  template <class Make>
  void write(Make&& make) {
    if (monitor_.listens()) monitor_.write(make());
  }
  // Writes an event of the current step; `values` are its members.
  void write_event(std::string_view event, nlohmann::ordered_json values);
  void tell_saved(int64_t step, const std::string& directory);
  void tell_warning(const std::string& text);
  void tell_early_stop(const BestEvaluation& best);
  void tell_incident(const Incident& incident);
  // Writes the file of --trace.
  void tell_trace(const FlightFiles& files);

 private:
  LogConfig config_;
  std::FILE* out_;
  bool terminal_;
  bool line_open_ = false;
  Monitor& monitor_;
  nlohmann::json start_record_;  // the values of the record of the start; null without --trace
  std::string unshown_;          // line of the last step, unless it was printed permanently
  int64_t first_step_ = 1;
  int64_t last_step_ = 0;
  int64_t step_ = 0;  // shown last
  std::chrono::steady_clock::time_point start_;
};

class Progress final : public RunObserver, public ProgressLines {
 public:
  Progress(const LogConfig& config, std::FILE* out, Monitor& monitor, Command command)
      : ProgressLines(config, out, monitor), command_(std::move(command)) {}

  void on_start(const RunReport& report) override;
  void on_step(const StepReport& report) override;
  void on_eval(const EvalReport& report) override;
  void on_sample(int64_t step, const std::string& text) override;
  void on_scores(int64_t step, const Scores& scores) override;
  void on_saved(int64_t step, const std::string& directory) override;
  void on_early_stop(const BestEvaluation& best) override { tell_early_stop(best); }
  void on_warning(const std::string& text) override;
  void on_incident(const Incident& incident) override { tell_incident(incident); }
  void on_trace(const FlightFiles& files) override { tell_trace(files); }

 private:
  std::string describe(const StepReport& report) const;

  Command command_;
  // Of the run that has started.
  const char* unit_ = "tokens";
  const char* loss_unit_ = "tokens";
};

// Prints a warning to stderr, for commands without progress.
void print_warning(const std::string& text);

}  // namespace trifold::launch
