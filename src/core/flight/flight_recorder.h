// FlightRecorder keeps the last events of one rank (parts of the run, actions, collectives, messages) in a ring, with
// the times at which they began and ended. An event that has no end tells what the rank was doing.
//
// The ring is in a mapped file, if one is named: it then outlives the process, however that ends, and
// `trifold inspect --flight` reads it. Otherwise it is in memory, for the table of a time-out alone.
//
// Cost: an event takes two readings of the clock and about twenty stores; nothing is allocated, locked or written by a
// system call.
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

namespace trifold {

struct FlightEvent {
  enum class Kind : uint8_t {
    Part,        // a part of the run: "step", "evaluate", "save", "load"
    Action,      // an action of the plan: "0F1"
    Collective,  // "all_reduce": call `number` of communicator `group`, counted from 0
    Send,        // message `number` to `peer` over communicator `group`, counted from 0
    Receive,     // message `number` from `peer`
  };
  static constexpr size_t kNameBytes = 23;  // a longer name is cut

  Kind kind = Kind::Part;
  std::array<char, kNameBytes> name_bytes = {};
  int32_t group = -1;  // index of the communicator in FlightLog::groups
  int32_t peer = -1;   // rank of the world
  int64_t number = 0;
  int64_t bytes = 0;  // that this rank sends, counted as in comm/communicator.h
  // The fields below are set by the recorder.
  uint64_t ticket = 0;  // position in the order in which the rank's events began, counted from 0
  int64_t step = 0;     // the run's step, counted from 1; 0: before the first
  int64_t begin_ns = 0;
  int64_t end_ns = 0;  // 0: it has not ended

  std::string_view name() const;
  void set_name(std::string_view text);
};

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
  void end(uint64_t ticket);

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

  static int64_t now_ns();

 private:
  using Word = std::atomic<uint64_t>;

  static void store(Word& word, int64_t value) {
    word.store(static_cast<uint64_t>(value), std::memory_order_relaxed);
  }

  std::byte* memory_ = nullptr;
  Word& beat_;
  Word& step_;
  std::atomic<int64_t> wait_limit_ms_{0};
  std::atomic<int64_t> last_ns_{0};
  std::atomic<uint64_t> action_{0};  // 1 + ticket of the last action or part; 0: none
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
  FlightScope(const FlightScope&) = delete;
  FlightScope& operator=(const FlightScope&) = delete;

 private:
  FlightRecorder* recorder_;
  uint64_t ticket_ = 0;
  int exceptions_;
};

}  // namespace trifold
