// ThreadGroup is the state shared by the ranks of one thread communicator; ThreadGroups is the state of a world, with
// all its groups. Internal to thread_comm.cpp.
//
// A *meeting* is a barrier of a group. A collective has two: after the first, all offers are published; after the
// second, no rank accesses another's tensors any more.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/call.h"
#include "comm/rank_report.h"
#include "core/function_ref.h"
#include "core/host_thread.h"
#include "core/small_list.h"
#include "core/wait_clock.h"

namespace trifold {

class ThreadGroup;

// The state of a world. It owns the groups, which live as long as it does, so communicators should be split only at the
// start of a run.
class ThreadGroups {
 public:
  ThreadGroups(int size, std::chrono::milliseconds limit, const OpTable& arithmetic);

  ThreadGroup& add(std::vector<int> world_ranks);
  void abort(std::string_view why) noexcept;  // the first `why` is kept
  bool aborted() const { return aborted_.load(); }
  // Aborts because a wait, described by `what`, timed out: every rank gets the report of all ranks. If they wait
  // for the disk or for data, extends the clock instead and returns false. Called by the waiting thread.
  bool give_up(int world_rank, const std::string& what, WaitClock& clock) noexcept;
  bool timed_out() const { return timed_out_.load(); }
  const std::string& why() const { return why_; }  // valid once aborted
  [[noreturn]] void throw_aborted() const;
  // Records that the calling thread runs this rank.
  void settle(int world_rank);
  // Lets the rank's waits have the time-out of `recorder`, and reports tell what it records.
  void attach(int world_rank, std::shared_ptr<FlightRecorder> recorder);
  // The time-out of a wait of this rank: the learned one (FlightRecorder::wait_limit), except for its background saver.
  std::chrono::milliseconds limit_of(int world_rank) const;
  std::vector<RankReport> reports() const;

  const int world_size;
  const std::chrono::milliseconds timeout;
  const OpTable& ops;
  const bool oversubscribed;  // more ranks than cores: a waiting rank sleeps at once

 private:
  struct Home {  // the thread that runs a rank
    std::string where;
    std::shared_ptr<HostThread> host;          // null: unknown
    std::shared_ptr<FlightRecorder> recorder;  // null: none
  };

  RankReport report_of(int rank) const;  // requires mutex_

  std::atomic<bool> aborted_{false};
  std::atomic<bool> timed_out_{false};  // set before aborted_
  std::string why_;                     // written once, before aborted_
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<ThreadGroup>> groups_;
  std::vector<Home> homes_;
};

// A Transfer without its shape, as stored in a stream's task. Batches of a plan seldom have more than two.
struct ThreadTransfer {
  Transfer::Direction direction = Transfer::Direction::Send;
  DType dtype = DType::U8;
  int peer = 0;
  void* data = nullptr;
  int64_t elements = 0;

  Tensor tensor() const { return {data, dtype, {elements}}; }
};
using ThreadTransfers = SmallList<ThreadTransfer, 8>;

// A send that waits for its receive; it lives in the sender's frame. Guarded by the group's mutex.
struct ThreadPost {
  enum class State { Posted, Taken, Done };
  Tensor tensor;
  State state = State::Posted;
  std::string refusal;  // why the receiver rejected it
};

// The data that a rank publishes to the others during a collective.
struct ThreadOffer {
  Call call;
  void* out = nullptr;
  void* in = nullptr;
  const int64_t* out_rows = nullptr;
  const int64_t* in_rows = nullptr;
  int color = 0;  // split
  int key = 0;
  ThreadGroup* made = nullptr;  // split: the new group of this rank, written by that group's first rank
};

class ThreadGroup {
 public:
  ThreadGroup(ThreadGroups& world, std::vector<int> world_ranks);

  int size() const { return static_cast<int>(world_ranks_.size()); }
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  int world_rank(int rank) const { return world_ranks_[static_cast<size_t>(rank)]; }
  const std::string& name() const { return name_; }
  ThreadGroups& world() const { return world_; }
  // Call it only inside the `inspect` and `work` of `collective`.
  ThreadOffer& offer(int rank) { return slot(rank).offer; }

  // Runs `work` on every rank once all ranks have made the same call, and returns once all have run it. In
  // between, the offers of all ranks can be read. Throws the same Error on all ranks if the calls disagree,
  // or if `inspect`, run before any work, returns a text (which must be the same on all ranks).
  void collective(int rank, const ThreadOffer& offer, FunctionRef<std::string()> inspect,
                  FunctionRef<void()> work);

  // See Communicator::exchange. `copy` must be done when it returns.
  using Copy = FunctionRef<void(void* to, const void* from, size_t bytes)>;
  void exchange(int rank, std::span<const ThreadTransfer> transfers, Copy copy);

  // What this rank does in this group; texts for RankReport::doing, empty if they do not apply.
  struct Standing {
    std::string waits;  // the rank waits for others
    std::string hangs;  // the rank is in a wait, but its thread does not run
  };
  Standing standing(int rank) const;
  // The last call that this rank completed.
  struct LastCall {
    std::string text;
    Clock::time_point at;
  };
  std::optional<LastCall> last_call(int rank) const;
  void wake_all() noexcept;

 private:
  struct alignas(128) Slot {
    std::atomic<uint64_t> arrived{0};                    // meetings that this rank has reached
    std::atomic<bool> working{false};                    // it may be accessing other ranks' tensors
    ThreadOffer offer;                                   // read by others between two meetings only
    uint64_t calls = 0;                                  // calls of this rank
    const FunctionRef<std::string()>* asleep = nullptr;  // describes its wait; guarded by mutex_
    const WaitClock* clock = nullptr;                    // duration of its wait; guarded by mutex_
    std::atomic<int64_t> ended{0};                       // when its last call ended, by Clock; 0: none yet
    std::atomic<uint64_t> last{0};                       // its last call: 256 * number + kind
  };
  class Working;

  Slot& slot(int rank) { return slots_[static_cast<size_t>(rank)]; }
  std::vector<ThreadPost*>& mail(int from, int to) { return mail_[static_cast<size_t>(from * size() + to)]; }

  // Enters the next meeting and waits for the others; throws if the world is aborted or the wait times out.
  void meet(int rank, const Call& call);
  // Returns whether `ready` became true; otherwise the world is aborted, by another rank or because of the
  // time-out. `what` describes the wait. `what` and, once the rank sleeps, `ready` are called with mutex_ held.
  bool await(int rank, FunctionRef<bool()> ready, FunctionRef<std::string()> what);
  bool sleep(int rank, FunctionRef<bool()> ready, FunctionRef<std::string()> what);
  void note_end(int rank, uint64_t number, uint64_t kind);
  bool spin(FunctionRef<bool()> ready) const;
  void wake();
  // Waits until no rank accesses another's tensors in a collective, then throws the Error of the abort.
  [[noreturn]] void leave() const;
  bool all_arrived(uint64_t meeting) const;

  struct Receive;
  struct Batch;
  bool take_one(int rank, Batch& batch, Copy copy);
  void withdraw(int rank, Batch& batch);
  std::string pending(const Batch& batch) const;

  ThreadGroups& world_;
  const std::vector<int> world_ranks_;
  const std::string name_;
  std::vector<Slot> slots_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<int> sleepers_{0};
  std::vector<std::vector<ThreadPost*>> mail_;  // [from * size + to], guarded by mutex_
  std::atomic<uint64_t> mail_changes_{0};
};

}  // namespace trifold
