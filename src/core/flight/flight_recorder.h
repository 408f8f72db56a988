// FlightRecorder keeps the last events of one rank (parts of the run, actions, collectives, messages) in a ring, with
// the times at which they began and ended. An event that has no end tells what the rank was doing.
//
// The ring is in a mapped file, if one is named: it then outlives the process, however that ends, and
// `trifold inspect --flight` reads it. Otherwise it is in memory, for the table of a time-out alone.
//
// Cost: an event takes two readings of the clock and about twenty stores; nothing is allocated, locked or written by a
// system call. While a trace is kept, an event also takes a lock and memory (core/flight/flight_trace.h).
//
// Threads: any thread of the rank may begin and end events. Every word of the ring is an atomic one, so that another
// thread or process may read at any time; an event that is overwritten while it is read is left out.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/clock.h"
#include "core/flight/flight_event.h"
#include "core/flight/flight_trace.h"

namespace trifold {

// A copy of what a recorder has. Times are nanoseconds of a clock of the recorder's host that starts anywhere.
struct FlightLog {
  enum class End : uint32_t {
    Running,   // the process still runs, or was killed
    Finished,  // the rank ended
    Failed,    // the rank ended with an error
  };

  int rank = 0;
  int ranks = 1;
  int64_t pid = 0;
  std::string host;
  End end = End::Running;
  int64_t wall_ns = 0;  // to be added to a time: nanoseconds since 1970
  int64_t beat_ns = 0;  // when the process last showed that it runs
  int64_t step = 0;
  std::vector<std::vector<int>> groups;  // [communicator] its ranks of the world
  std::vector<FlightEvent> events;       // in the order of their tickets; the oldest may be missing

  double wall_seconds(int64_t ns) const { return 1e-9 * static_cast<double>(ns + wall_ns); }
};

class FlightRecorder {
 public:
  static constexpr size_t kSlots = 4096;

  // `file` is created; empty: the ring is in memory. Error if the file exists or cannot be created.
  FlightRecorder(int rank, int ranks, const std::string& file = {});
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  // Adds a communicator and returns its index; -1 once the memory for communicators is used up.
  int32_t add_group(std::span<const int> world_ranks);

  // Begins an event and returns its ticket.
  uint64_t begin(const FlightEvent& event);
  // The event begins now: for work that was enqueued when its event began.
  void restart(uint64_t ticket) { set_times(ticket, now_ns(), std::nullopt); }
  void end(uint64_t ticket);
  // Ends the event, which lasted from one reading of the clock to the other.
  void end(uint64_t ticket, const ClockSpan& span) { set_times(ticket, ns_of(span.begin), ns_of(span.end)); }

  // From now on, every event is also kept in memory that grows, until take_trace(). Once in a recorder's life; for the
  // rank's thread.
  void start_trace();
  // The log with the events since start_trace(), whose number the ring does not limit, instead of the ring's.
  FlightLog take_trace();

  // The recorder of the rank that runs on the calling thread; null if there is none.
  static FlightRecorder* here() { return of_thread(); }
  // Scope guard: the calling thread runs the rank of `recorder`.
  class Here {
   public:
    explicit Here(FlightRecorder& recorder) { of_thread() = &recorder; }
    ~Here() { of_thread() = nullptr; }
    Here(const Here&) = delete;
    Here& operator=(const Here&) = delete;
  };

  // The step that the rank is in; events that begin later belong to it.
  void set_step(int64_t step) { store(step_, step); }
  // Records that the process runs.
  void beat() { store(beat_, now_ns()); }
  // Records how the rank ended. Without a call the log says that it runs.
  void finish(FlightLog::End end);

  // The time-out of waits for other ranks, shorter than that of the world; by default there is none.
  void set_wait_limit(std::optional<std::chrono::milliseconds> limit) {
    wait_limit_ms_.store(limit ? limit->count() : 0, std::memory_order_relaxed);
  }
  // The shorter one of `timeout` and of set_wait_limit.
  std::chrono::milliseconds wait_limit(std::chrono::milliseconds timeout) const {
    const int64_t limit = wait_limit_ms_.load(std::memory_order_relaxed);
    return limit > 0 && limit < timeout.count() ? std::chrono::milliseconds(limit) : timeout;
  }

  // "step 12, 0B1": where the rank is in its run; "" before its first event.
  std::string place() const;
  // Seconds since an event last began or ended.
  double idle_seconds() const;

  FlightLog log() const;

  static int64_t now_ns() { return ns_of(Clock::now()); }

 private:
  using Word = std::atomic<uint64_t>;

  static int64_t ns_of(Clock::time_point time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  }
  static FlightRecorder*& of_thread() {
    static thread_local FlightRecorder* recorder = nullptr;
    return recorder;
  }
  // Sets the times that are given.
  void set_times(uint64_t ticket, std::optional<int64_t> begin_ns, std::optional<int64_t> end_ns);

  static void store(Word& word, int64_t value) {
    word.store(static_cast<uint64_t>(value), std::memory_order_relaxed);
  }

  std::byte* memory_ = nullptr;
  Word& beat_;
  Word& step_;
  std::atomic<int64_t> wait_limit_ms_{0};
  std::atomic<int64_t> last_ns_{0};
  std::atomic<uint64_t> action_{0};  // 1 + ticket of the last action or part; 0: none
  // The kept one stays while the recorder exists, because another thread may be about to add to it.
  std::unique_ptr<FlightTrace> kept_trace_;
  std::atomic<FlightTrace*> trace_{nullptr};  // null: no event is added
};

// Reads the file of a recorder. BadInput, naming it, if it is none.
FlightLog read_flight_log(const std::string& file);

// Scope guard: an event lasts as long as it, unless an exception ends the scope; the event then has no end. Does
// nothing without a recorder.
class FlightScope {
 public:
  FlightScope(FlightRecorder* recorder, const FlightEvent& event);
  FlightScope(FlightRecorder* recorder, FlightEvent::Kind kind, std::string_view name);
  ~FlightScope();
  // The event lasted from one reading of the clock to the other, whenever the scope ends.
  void lasted(const ClockSpan& span) { span_ = span; }
  FlightScope(const FlightScope&) = delete;
  FlightScope& operator=(const FlightScope&) = delete;

 private:
  FlightRecorder* recorder_;
  uint64_t ticket_ = 0;
  int exceptions_;
  std::optional<ClockSpan> span_;
};

}  // namespace trifold
