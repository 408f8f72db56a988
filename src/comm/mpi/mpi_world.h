// MpiWorld: the state shared by the communicators of one MPI world: the MPI library, messages, waits, abort.
//
// Only non-blocking point-to-point messages on one duplicate of MPI_COMM_WORLD are used, never MPI's own
// collectives: so every wait can be polled with a deadline and can name the missing ranks, and sums are in
// rank order. Groups are lists of world ranks, distinguished by message tags ("contexts"). Every call into
// MPI is made under one lock, so MPI_THREAD_SERIALIZED is enough although several threads communicate at
// once.
//
// Ranks send each other *news* outside of all communicators. Each rank checks for news whenever it waits, and
// ten times a second on a separate thread, so that a rank that hangs in a computation still answers. An abort
// is such a message. After an abort or a time-out the world is *broken*: receives are cancelled, but sends
// may still be pending, so the memory of a failed call should stay allocated until the process ends.
// MPI_Finalize gets only a few seconds, because it would wait without limit for ranks that have ended.
//
// Received messages are checked before they are used: a message of unexpected length, and news that no rank of this
// program sends, are errors that name the sender.
//
// A rank sends the next one a heartbeat every second (kBeat), whatever it computes, so that a report tells since when a
// rank that does not answer has been silent.
//
// A rank whose wait times out asks all others what they are doing (mpi_news.cpp); a rank that does not answer
// within two seconds is stopped, dead or cut off. The asking rank reports the answers to the user and ends
// the job with MPI_Abort. Of several that ask at once, the lowest continues.
#pragma once

#include <mpi.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "comm/call.h"
#include "comm/mpi_module.h"
#include "comm/rank_report.h"
#include "core/clock.h"
#include "core/function_ref.h"
#include "core/wait_clock.h"
#include "ops/ops.h"

namespace trifold {

// Throws unless `code` is MPI_SUCCESS.
void check_mpi(int code, const char* function);

// Messages in flight; a finished one becomes MPI_REQUEST_NULL. Receives are in a list of their own because they can be
// cancelled.
struct MpiRequests {
  struct Expected {
    int from = 0;
    int bytes = 0;
  };
  std::vector<MPI_Request> receives;
  std::vector<Expected> expected;  // one for each receive
  std::vector<MPI_Request> sends;
};

enum class MpiTag : int { Call, Row, RowProblem, Split, Data, SendHeader, ReceiveHeader, News };

class MpiWorld {
 public:
  // Collective over all processes; to be called by the thread that runs the rank.
  explicit MpiWorld(const MpiModuleHost& host);
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  const OpTable& ops() const { return ops_; }
  bool broken() const { return broken_.load(); }

  // Hold this lock when calling the functions from here to `await`; `done` and `what` are called with it held.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(calls_); }
  // Adds the messages for `bytes` at `data`, which are split because MPI counts in int, and so that progress
  // can be observed.
  void send(MpiRequests& requests, const void* data, size_t bytes, int world_rank, int context, MpiTag tag);
  void receive(MpiRequests& requests, void* data, size_t bytes, int world_rank, int context, MpiTag tag);
  // Lets MPI make progress; true when all messages have finished. Throws if one has not the expected length.
  bool test(MpiRequests& requests);
  // Cancels the receives that have not finished.
  void cancel(MpiRequests& requests);

  // Records a call of this rank, for the reports of time-outs.
  void note(const Call& call, const std::shared_ptr<const std::string>& group, bool exchanges);

  // Polls `done`, at increasing intervals, until it is true. Throws if the world is aborted or, after informing the
  // other ranks, on a time-out; `what` is then part of the message. With LastWords, a time-out does not return.
  void await(FunctionRef<bool()> done, FunctionRef<std::string()> what);
  // `await` for messages; if it fails, the receives have been cancelled.
  void wait(MpiRequests& requests, FunctionRef<std::string()> what);

  void throw_if_broken();
  void abort(std::string_view why) noexcept;

  // See Communicator.
  std::string status();
  void attach(std::shared_ptr<FlightRecorder> recorder);

  // A context is known to all ranks of a group and used by no other group that shares two ranks with it: each
  // rank proposes one, and all take the highest proposal.
  int propose_context() { return next_context_.load(); }
  void use_context(int context);

 private:
  // One message of fixed length.
  struct News {
    enum class Kind : int32_t { Abort, Ask, Answer, Beat };
    static constexpr size_t kTextBytes = 4000;
    static constexpr size_t kPlaceBytes = 80;

    Kind kind = Kind::Abort;
    int32_t from = 0;
    // Answer: the fields of RankReport.
    int32_t waits = 0;
    int32_t outside = 0;
    int32_t saver_outside = 0;
    double last_sign = -1;   // below 0: there is none
    double before_beat = 0;  // seconds since the last heartbeat of the rank before the answering one
    char place[kPlaceBytes] = {};
    char text[kTextBytes] = {};

    void set_text(std::string_view all);
    void set_place(std::string_view all);
  };
  // A wait of a thread.
  struct Wait {
    FunctionRef<std::string()> what;
    const WaitClock& clock;
  };
  class Waiting;

  void test_some(std::vector<MPI_Request>& requests, std::span<const MpiRequests::Expected> expected);
  int tag_of(int context, MpiTag tag) const;
  void set_broken(std::string_view why, ErrorKind kind = ErrorKind::Aborted);

  // Call the functions below with the lock held.
  bool done_or_broken(FunctionRef<bool()> done);
  void learn_places();
  void expect_news();
  void look_for_news();
  // Why these news cannot come from a rank of this program; empty if they can.
  std::string problem_of(int code, const MPI_Status& status) const;
  void take(const News& news);
  void send_news(int world_rank, const News& news);
  void tell_others(std::string_view why);
  RankReport own_report() const;
  // Texts of this rank's waits: first the waits of threads that do not run, then the other waits. The wait of a rank
  // that asks is not included.
  std::pair<std::string, std::string> own_waits() const;
  bool all_have_answered() const;
  // Whether another rank is already collecting reports.
  bool leaves_it_to_another() const;
  // Asks all ranks what they are doing, and waits up to kAnswers, with the lock released. Reports of all ranks, in the
  // order of ranks; nothing if a lower rank asks at the same time, or the world breaks.
  std::optional<std::vector<RankReport>> ask_all(std::unique_lock<std::mutex>& held);
  // Sends the next rank a heartbeat if the last one has arrived.
  void send_beat();
  // The time-out of a wait of the calling thread. Call it with the lock held.
  std::chrono::milliseconds limit() const {
    const bool saves = host_->saver.load() == std::this_thread::get_id();
    return recorder_ && !saves ? recorder_->wait_limit(timeout_) : timeout_;
  }
  // Asks all ranks what they are doing and reports the answers. Returns if another rank does that, if `done`
  // becomes true, or, with the clock extended, if the ranks wait for the disk or for data. May release the lock while it waits.
  void give_up(std::unique_lock<std::mutex>& held, FunctionRef<bool()> done, const std::string& what,
               WaitClock& clock);
  [[noreturn]] void end_job(const std::string& why);
  void watch_loop();

  const std::chrono::milliseconds timeout_;
  const OpTable& ops_;
  HostThread* const host_;
  const std::thread::id host_id_ = std::this_thread::get_id();
  const LastWords last_words_;
  std::mutex calls_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
  int highest_tag_ = 0;
  bool shares_cores_ = false;         // this host has fewer cores than ranks
  std::atomic<int> next_context_{1};  // context 0 is the world
  std::atomic<bool> broken_{false};

  // Guarded by calls_.
  std::string why_;
  ErrorKind why_kind_ = ErrorKind::Aborted;
  bool why_is_ours_ = false;  // no other rank reports it
  Clock::time_point broken_at_;
  uint64_t finished_ = 0;  // number of finished messages
  std::list<Wait> waits_;
  std::vector<std::string> places_;  // host and process of each rank
  Call last_call_;
  std::shared_ptr<const std::string> last_group_;
  bool last_exchanges_ = false;
  Clock::time_point last_at_;
  MPI_Request news_request_ = MPI_REQUEST_NULL;
  std::unique_ptr<News> news_in_;
  std::optional<Clock::time_point> asked_at_;  // when another rank last asked
  int asked_by_ = 0;                           // the lowest rank that asked while this rank was asking
  bool asking_ = false;
  std::vector<std::optional<RankReport>> answers_;
  std::shared_ptr<FlightRecorder> recorder_;
  std::unique_ptr<News> beat_;  // in flight while beat_request_ is not null
  MPI_Request beat_request_ = MPI_REQUEST_NULL;
  Clock::time_point heard_before_ = Clock::now();  // last heartbeat of the rank before this one
  std::vector<std::optional<double>>
      beats_heard_;  // by rank: the seconds that the rank after it has answered

  std::mutex watch_mutex_;
  std::condition_variable watch_ends_;
  bool ending_ = false;
  std::thread watch_;
};

}  // namespace trifold
