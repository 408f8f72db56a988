// Progress: tells a person, and a file, how a run goes. On a terminal one line is updated in place; otherwise
// a plain line is printed every log_interval steps. The JSON log has one object a step with full-precision
// numbers.
#pragma once

#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <string>

#include "config/config.h"
#include "train/metrics.h"

namespace trifold::launch {

// Appends JSON objects to a file, one a line, each flushed as it is written.
class JsonLog {
 public:
  // BadInput when the file cannot be opened.
  explicit JsonLog(const std::string& path);
  void write(const StepReport& report);
  // `part` names the data: "valid" gives the key valid_loss. What the loss is the mean over is
  // there too, "tokens" as a rule: with the size of the text it makes bits per byte.
  void write(const EvalReport& report, const std::string& part = "valid");
  void write(int64_t step, const Scores& scores);
  // One object, without a line break.
  void write(const std::string& object) { write_line(object); }

 private:
  void write_line(const std::string& line);

  std::string path_;
  std::ofstream file_;
};

class Progress final : public RunObserver {
 public:
  // Prints to `out`, which must outlive it.
  Progress(const LogConfig& config, std::FILE* out);
  ~Progress() override { finish(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void on_start(const RunReport& report) override;
  void on_step(const StepReport& report) override;
  void on_eval(const EvalReport& report) override;
  void on_scores(int64_t step, const Scores& scores) override;
  void on_saved(int64_t step, const std::string& directory) override;
  void on_warning(const std::string& text) override;
  // Ends the updating line; the last step is always shown.
  void finish();

 private:
  std::string describe(const StepReport& report) const;
  void print_line(const std::string& text);  // stays
  std::string remaining(const StepReport& report) const;

  LogConfig config_;
  std::FILE* out_;
  bool terminal_;
  bool line_open_ = false;
  std::optional<JsonLog> json_;
  std::optional<StepReport> unshown_;  // the last step, when no line of it stays
  int64_t first_step_ = 1;
  int64_t last_step_ = 0;
  std::chrono::steady_clock::time_point start_;
};

// Prints one to stderr, for commands that have no progress to show.
void print_warning(const std::string& text);

// "1.21 GiB", "350 KiB"
std::string bytes_text(size_t bytes);

}  // namespace trifold::launch
