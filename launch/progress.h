// Reports the progress of a run as text and in a JSON log: ProgressLines for runs of any kind, Progress for language
// models. On a terminal one line is updated in place; otherwise a plain line is printed every log_interval steps. The
// JSON log has one object per step, with numbers at full precision.
#pragma once

#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>

#include "config/fields/config.h"
#include "core/read_json.h"
#include "run/metrics.h"

namespace trifold::launch {

// Appends JSON objects to a file, one per line, flushing each.
class JsonLog {
 public:
  // Removes an incomplete last line, which a kill has left. BadInput if the file cannot be opened.
  explicit JsonLog(const std::string& path);
  void write(const StepReport& report);
  // `part` names the data: "valid" gives the key valid_loss. The object includes the count over which the loss is the
  // mean, usually "tokens"; with the size of the text it gives bits per byte.
  void write(const EvalReport& report, const std::string& part = "valid");
  void write(int64_t step, const Scores& scores);
  // One object, without a line break.
  void write(const std::string& object) { write_line(object); }

 private:
  void write_line(const std::string& line);

  std::string path_;
  std::ofstream file_;
};

class ProgressLines {
 public:
  // Prints to `out`, which must outlive this object.
  ProgressLines(const LogConfig& config, std::FILE* out);
  virtual ~ProgressLines() { finish(); }
  ProgressLines(const ProgressLines&) = delete;
  ProgressLines& operator=(const ProgressLines&) = delete;

  // Ends the line that is updated in place; the last step is always shown.
  void finish();

 protected:
  // Prints the first lines of every run, beginning with `ranks`, and starts the clock of `remaining`.
  void begin(const StartReport& report, std::string_view ranks);
  int64_t last_step() const { return last_step_; }
  void print_line(const std::string& text);  // prints permanently
  // Shows the line of a step: permanently every log_interval steps and after the last one; other steps are shown on a
  // terminal until the next. Returns whether the line is permanent.
  bool show_step(int64_t step, const std::string& text);
  // The time until the last step: "1:02:03".
  std::string remaining(int64_t step) const;
  // Appends the result of `object` to the JSON log, if there is one.
  template <class Object>
  void write_json(Object&& object) {
    if (json_) json_->write(json_text(object()));
  }
  std::optional<JsonLog>& json() { return json_; }
  void tell_saved(const std::string& directory);
  void tell_warning(const std::string& text);
  void tell_early_stop(const BestEvaluation& best);

 private:
  LogConfig config_;
  std::FILE* out_;
  bool terminal_;
  bool line_open_ = false;
  std::optional<JsonLog> json_;
  std::string unshown_;  // line of the last step, unless it was printed permanently
  int64_t first_step_ = 1;
  int64_t last_step_ = 0;
  std::chrono::steady_clock::time_point start_;
};

class Progress final : public RunObserver, public ProgressLines {
 public:
  using ProgressLines::ProgressLines;

  void on_start(const RunReport& report) override;
  void on_step(const StepReport& report) override;
  void on_eval(const EvalReport& report) override;
  void on_scores(int64_t step, const Scores& scores) override;
  void on_saved(int64_t step, const std::string& directory) override;
  void on_early_stop(const BestEvaluation& best) override { tell_early_stop(best); }
  void on_warning(const std::string& text) override;

 private:
  std::string describe(const StepReport& report) const;

  // Of the run that has started.
  const char* unit_ = "tokens";
  const char* loss_unit_ = "tokens";
};

// Prints a warning to stderr, for commands without progress.
void print_warning(const std::string& text);

}  // namespace trifold::launch
