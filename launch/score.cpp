#include "recommend/score.h"

#include <fmt/core.h>

#include <atomic>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "core/clock.h"
#include "core/error.h"
#include "core/printable.h"
#include "files/output_files.h"
#include "launch/click_lines.h"
#include "launch/commands.h"
#include "launch/process/signals.h"
#include "launch/say.h"

namespace trifold::launch {

namespace {

void print_piece(std::string_view text) {
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  check(written, "--output -: writing failed; was the reader of the output closed, or is the disk full?");
}

}  // namespace

int run(const ScoreConfig& config, Ranks& ranks) {
  ScoreJob job;
  ranks.agree([&] { job = prepare(config); });
  ranks.compare(job.terms);
  const std::atomic<int>& signal = catch_signals();
  const auto start = Clock::now();
  bool is_reporter = false;                           // the process of rank 0
  std::optional<std::vector<TableUnknowns>> unknown;  // set in the process of rank 0 when all is done
  ranks.run(config.run.mesh, [&](Communicator& world) {
    std::optional<OutputFile> file;
    if (world.rank() == 0) {
      is_reporter = true;
      if (config.output != "-") file.emplace("--output", config.output);
    }
    const auto counts = score(world, job, signal, [&](std::string_view text) {
      if (file)
        file->write(text);
      else
        print_piece(text);
    });
    if (world.rank() != 0) return;
    if (counts && file) file->finish();
    unknown = counts;
  });
  if (!is_reporter) return kDone;
  for (const std::string& note : job.recommender.data.notes)
    say(stderr, fmt::format("{}\n", printable_message(note)));
  if (!unknown) {
    say(stderr, "trifold: stopped on a signal before all samples were predicted\n");
    return kFailed;
  }
  const size_t left_out = job.recommender.data.left_out.size();
  say(stderr,
      fmt::format(
          "{} predictions{} by {} (step {}) in {:.1f} s{}\n", job.recommender.samples().samples(),
          left_out == 0 ? "" : fmt::format(", and {} row{} without one,", left_out, left_out == 1 ? "" : "s"),
          job.recommender.directory, job.recommender.step, seconds_since(start),
          config.output == "-" ? "" : ": " + config.output));
  if (const std::string line = correction_line(job.recommender.logit_offset); !line.empty())
    say(stderr, line + "\n");
  for (const std::string& line : unknown_lines(*unknown)) say(stderr, line + "\n");
  return kDone;
}

}  // namespace trifold::launch
