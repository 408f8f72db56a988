// MpiWorld: what the communicators of one MPI world share: the MPI library, messages, waiting, abort.
//
// Only non-blocking point-to-point messages on one duplicate of MPI_COMM_WORLD are used, never MPI's own
// collectives: so every wait can be polled with a deadline, names the ranks that did not come, and adds in
// rank order. Groups are lists of world ranks told apart by message tags ("contexts"). Every call into MPI is
// made under one lock, so MPI_THREAD_SERIALIZED is enough although several threads communicate at once.
//
// Abort is a message to every other rank, which each looks for whenever it waits. After an abort or a
// time-out the world is *broken*: receives are cancelled, sends may still be pending, so the memory of a call
// that failed should stay until the process ends, and MPI_Finalize is given a few seconds only, as ranks that
// are gone would keep it for ever.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/function_ref.h"
#include "ops/ops.h"

namespace trifold {

// Messages under way; a finished one becomes MPI_REQUEST_NULL. Receives have to be told apart, to be
// cancelled.
struct MpiRequests {
  std::vector<MPI_Request> receives;
  std::vector<MPI_Request> sends;
};

enum class MpiTag : int { Call, Row, RowProblem, Split, Data, SendHeader, ReceiveHeader, Abort };

class MpiWorld {
 public:
  // Collective over all processes.
  MpiWorld(std::chrono::milliseconds timeout, const OpTable& ops);
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  const OpTable& ops() const { return ops_; }
  bool broken() const { return broken_.load(); }

  // All functions down to `await` are to be called with this lock held; `done` and `what` run with it held.
  std::unique_lock<std::mutex> lock() { return std::unique_lock(calls_); }
  // Adds the messages for `bytes` at `data`, cut into pieces as MPI counts in int and so that progress can be
  // seen.
  void send(MpiRequests& requests, const void* data, size_t bytes, int world_rank, int context, MpiTag tag);
  void receive(MpiRequests& requests, void* data, size_t bytes, int world_rank, int context, MpiTag tag);
  // Lets MPI work; true when all have finished.
  bool test(MpiRequests& requests);
  // Takes back the receives that have not finished.
  void cancel(MpiRequests& requests);

  // Calls `done` again and again, first at once, then more and more rarely, until it is true. Throws when the
  // world is aborted, or when the time is up: then with `what`, after having told the other ranks.
  void await(FunctionRef<bool()> done, FunctionRef<std::string()> what);
  // await for messages; when it fails the receives have been cancelled.
  void wait(MpiRequests& requests, FunctionRef<std::string()> what);

  void throw_if_broken();
  void abort(std::string_view why) noexcept;

  // A context is known to all ranks of a group and used by no other group that shares two ranks with it: each
  // rank proposes one, and all take the highest proposal.
  int propose_context() { return next_context_.load(); }
  void use_context(int context);

 private:
  static constexpr size_t kReasonBytes = 2048;
  using Reason = std::array<char, kReasonBytes>;

  void post(std::vector<MPI_Request>& requests, bool sends, void* data, size_t bytes, int world_rank,
            int tag);
  int tag_of(int context, MpiTag tag) const;
  void look_for_abort();
  void set_broken(std::string_view why);
  void tell_others(std::string_view why);

  const std::chrono::milliseconds timeout_;
  const OpTable& ops_;
  std::mutex calls_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
  int highest_tag_ = 0;
  std::atomic<int> next_context_{1};  // 0 is the world's
  std::atomic<bool> broken_{false};
  std::string why_;        // guarded by calls_
  uint64_t finished_ = 0;  // messages; guarded by calls_
  MPI_Request abort_request_ = MPI_REQUEST_NULL;
  std::unique_ptr<Reason> abort_in_;
};

}  // namespace trifold
