#include "config/fields/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace trifold {

namespace {

constexpr std::array<std::string_view, 10> kNames{"gpipe",         "1f1b", "interleaved", "zb-h1",
                                                  "zb-h2",         "zb-v", "dualpipe-v",  "pipedream",
                                                  "pipedream-2bw", "auto"};

}  // namespace

std::span<const std::string_view> schedule_names() { return kNames; }

std::string_view schedule_name(Schedule schedule) { return kNames.at(static_cast<size_t>(schedule)); }

std::optional<Schedule> find_schedule(std::string_view name) {
  const auto place = std::find(kNames.begin(), kNames.end(), name);
  if (place == kNames.end()) return std::nullopt;
  return static_cast<Schedule>(place - kNames.begin());
}

bool is_async(Schedule schedule) {
  return schedule == Schedule::PipeDream || schedule == Schedule::PipeDream2BW;
}

bool needs_two_chunks(Schedule schedule) {
  return schedule == Schedule::ZbV || schedule == Schedule::DualPipeV;
}

bool takes_any_chunks(Schedule schedule) {
  return schedule == Schedule::Interleaved || schedule == Schedule::Auto;
}

// DualPipe-V's middle phase pairs forwards of one direction with backwards of the other; it exists only with at least 2
// p micro-batches. 2BW holds two weight versions only when a global batch is at least as long as the pipeline. The
// others run with any number, though some idle more.
int min_micros(Schedule schedule, int ranks, int /*chunks*/) {
  if (schedule == Schedule::DualPipeV) return 2 * ranks;
  if (schedule == Schedule::PipeDream2BW) return ranks;
  return 1;
}

std::string schedule_problem(Schedule schedule, int ranks, int chunks, int micros) {
  const std::string_view name = schedule_name(schedule);
  if (ranks < 1 || chunks < 1)
    return fmt::format("{} needs at least one rank and one chunk a rank, not {} and {}", name, ranks, chunks);
  if (needs_two_chunks(schedule) && chunks != 2)
    return fmt::format("{} places exactly 2 chunks on each rank, not {}", name, chunks);
  if (chunks > 1 && !needs_two_chunks(schedule) && !takes_any_chunks(schedule))
    return fmt::format(
        "{} has one chunk per rank, not {}; interleaved and auto take any number, zb-v and dualpipe-v take 2",
        name, chunks);
  const int least = min_micros(schedule, ranks, chunks);
  if (micros < least)
    return fmt::format(
        "{} on {} pipeline ranks needs at least {} micro-batches in a global batch, there {}; {}", name,
        ranks, least, micros == 1 ? "is 1" : fmt::format("are {}", micros),
        least > 1 && micros >= 1 ? "1f1b runs with any number" : "a larger global batch has more");
  return {};
}

}  // namespace trifold
