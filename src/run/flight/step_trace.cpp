#include "run/flight/step_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include "checkpoint/collective.h"
#include "core/error.h"
#include "core/flight/flight_recorder.h"

namespace trifold {

namespace {

// The first steps of a start allocate memory, measure and capture.
constexpr int64_t kStepsBefore = 2;

// What a trace needs of a rank's log, as it is sent. The ranks run one program (run/terms.h).
struct SentLog {
  int rank = 0, ranks = 1;
  int64_t pid = 0, wall_ns = 0, beat_ns = 0, step = 0;
  std::array<char, 256> host = {};
};
static_assert(std::is_trivially_copyable_v<SentLog> && std::is_trivially_copyable_v<FlightEvent>);

std::string bytes_of(const FlightLog& log) {
  SentLog sent{log.rank, log.ranks, log.pid, log.wall_ns, log.beat_ns, log.step};
  log.host.copy(sent.host.data(), sent.host.size() - 1);
  const size_t events = log.events.size() * sizeof(FlightEvent);
  std::string bytes(sizeof sent + events, '\0');
  std::memcpy(bytes.data(), &sent, sizeof sent);
  if (events > 0) std::memcpy(bytes.data() + sizeof sent, log.events.data(), events);
  return bytes;
}

FlightLog log_of(const std::string& bytes) {
  SentLog sent;
  std::memcpy(&sent, bytes.data(), sizeof sent);
  FlightLog log;
  log.rank = sent.rank;
  log.ranks = sent.ranks;
  log.pid = sent.pid;
  log.wall_ns = sent.wall_ns;
  log.beat_ns = sent.beat_ns;
  log.step = sent.step;
  log.host = sent.host.data();
  log.events.resize((bytes.size() - sizeof sent) / sizeof(FlightEvent));
  if (!log.events.empty())
    std::memcpy(log.events.data(), bytes.data() + sizeof sent, log.events.size() * sizeof(FlightEvent));
  return log;
}

// The logs of all ranks, on rank 0; elsewhere none. One log at a time is sent to all, so that no rank holds more than
// one besides its own. Collective.
std::vector<FlightLog> logs_on_rank_0(Communicator& world, const FlightLog& mine) {
  ThreadPool pool(1);
  Stream stream(Stream::Mode::Inline, pool);
  const std::string my_bytes = bytes_of(mine);
  std::vector<int64_t> sizes(static_cast<size_t>(world.size()));
  auto my_size = static_cast<int64_t>(my_bytes.size());
  world.all_gather({sizes.data(), DType::I64, {world.size()}}, {&my_size, DType::I64, {1}}, stream);
  std::vector<FlightLog> logs;
  for (int rank = 0; rank < world.size(); ++rank) {
    const int64_t size = sizes[static_cast<size_t>(rank)];
    std::string bytes = rank == world.rank() ? my_bytes : std::string(static_cast<size_t>(size), '\0');
    world.broadcast({bytes.data(), DType::U8, {size}}, rank, stream);
    stream.synchronize();
    if (world.rank() == 0) logs.push_back(log_of(bytes));
  }
  return logs;
}

}  // namespace

StepTrace::StepTrace(Communicator& world, const WatchConfig& watch, int64_t steps_done, int64_t last_step,
                     SaveObserver* observer)
    : world_(world), observer_(observer) {
  if (!watch.trace) return;
  // A run of a few steps is traced to its end.
  const int64_t usual = std::min(steps_done + kStepsBefore + 1, last_step - watch.trace_steps + 1);
  first_ = watch.trace_from.value_or(std::max(usual, steps_done + 1));
  last_ = first_ + watch.trace_steps - 1;
  if (last_ > steps_done)
    state_ = State::Waiting;
  else if (observer_ != nullptr)
    observer_->on_warning(
        fmt::format("--trace-from {}: the run continues after step {}, so {} is not written", first_,
                    steps_done, *watch.trace));
}

void StepTrace::before_step(int64_t steps_done, int64_t next) {
  if (state_ == State::Tracing && steps_done >= last_) end();
  if (state_ != State::Waiting || steps_done + next < first_) return;
  check(world_.recorder() != nullptr, "a trace needs flight recorders");
  world_.recorder()->start_trace();
  state_ = State::Tracing;
}

void StepTrace::finish() {
  if (state_ == State::Tracing) return end();
  if (state_ == State::Waiting && observer_ != nullptr)
    observer_->on_warning(fmt::format(
        "--trace: the run ended before step {}, the first one of the trace, so no trace is written", first_));
  state_ = State::Over;
}

void StepTrace::end() {
  state_ = State::Over;
  FlightFiles files;
  files.logs = logs_on_rank_0(world_, world_.recorder()->take_trace());
  gather_texts(world_, "writing the file of --trace", [&] {
    if (observer_ == nullptr) return std::string();
    try {
      observer_->on_trace(files);
    } catch (const Error& error) {
      observer_->on_warning(fmt::format("--trace: {}; the run goes on without a trace", error.what()));
    }
    return std::string();
  });
}

}  // namespace trifold
