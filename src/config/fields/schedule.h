// The micro-batch schedules, and the requirements of each on a configuration. schedule/schedules.h makes the plans.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trifold {

enum class Schedule : unsigned char {
  Gpipe,         // all forwards, then all backwards (Huang et al., 2019)
  OneFOneB,      // 1F1B with a flush (PipeDream-flush; Narayanan et al., 2021)
  Interleaved,   // 1F1B over several chunks a rank (Narayanan et al., 2021)
  ZbH1,          // zero bubble with the memory of 1F1B (Qi et al., 2023)
  ZbH2,          // zero bubble with twice that memory
  ZbV,           // zero bubble with two chunks a rank, placed as a V (Qi et al., 2024)
  DualPipeV,     // DeepSeek's DualPipe folded into a V
  PipeDream,     // asynchronous, a weight version for each micro-batch in flight (Narayanan et al., 2019)
  PipeDream2BW,  // asynchronous, two weight versions (Narayanan et al., 2020)
  Auto           // the fastest order found for given costs (schedule/automatic.h)
};

// "gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe-v", "pipedream", "pipedream-2bw",
// "auto": in the order of the enum.
std::span<const std::string_view> schedule_names();
std::string_view schedule_name(Schedule schedule);
std::optional<Schedule> find_schedule(std::string_view name);

// The schedules that update weights while micro-batches are in flight, for rules of options (options/rule.h) and for
// code.
inline constexpr std::string_view kAsynchronousSchedules = "pipedream|pipedream-2bw";
bool is_async(Schedule schedule);
bool needs_two_chunks(Schedule schedule);  // zb-v, dualpipe-v: exactly 2 chunks
bool takes_any_chunks(Schedule schedule);  // interleaved, auto; the other schedules have 1 chunk

// The fewest micro-batches per global batch with which the schedule can run.
int min_micros(Schedule schedule, int ranks, int chunks);

// Empty if the schedule can run with these sizes, else one line: what is wrong and what would be right. `ranks` is the
// pipeline-parallel size, `chunks` the model chunks of each rank, `micros` the micro-batches of a global batch.
std::string schedule_problem(Schedule schedule, int ranks, int chunks, int micros);

}  // namespace trifold
