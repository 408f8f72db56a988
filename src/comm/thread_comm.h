// ThreadWorld: ranks are threads of one process, and a Communicator for each of them.
//
// A collective is: publish the call and the addresses, meet, compare the calls, move data straight between
// the ranks' tensors (each rank reduces its own part, in rank order), meet again. Nothing is staged, so
// all_reduce reads and writes every element once per rank. Sums are the same on all ranks and in rank order:
// ((x0 + x1) + x2) + ...
//
// A rank that gives up (time-out, abort) leaves only after no other rank touches its tensors any more, and
// from then on every call on every communicator of the world fails, so its memory may be freed at once.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "comm/communicator.h"

namespace trifold {

class ThreadGroup;
class ThreadGroups;

class ThreadWorld {
 public:
  // The arithmetic of reductions on streams of a device is that of `ops`, which must outlive the world; on
  // streams of the host it is that of cpu_ops().
  explicit ThreadWorld(int size, std::chrono::milliseconds timeout = kDefaultCommTimeout);
  ThreadWorld(int size, std::chrono::milliseconds timeout, const OpTable& ops);
  ~ThreadWorld();
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;

  int size() const;

  // The communicator of all ranks as rank `rank` sees it: once for each rank, from the thread that will run
  // it. It, and everything split from it, must not outlive the world.
  std::unique_ptr<Communicator> join(int rank);

  // As Communicator::abort, for a thread that is no rank.
  void abort(std::string_view why) noexcept;

  // One line per rank: what it waits for, for people who look at a run that does not move; first those that
  // wait for nobody. From any thread.
  std::string status() const;
  // Whether the world has been aborted, and whether because a rank waited too long. From any thread.
  bool aborted() const;
  bool timed_out() const;
  // Why it was aborted; empty while it is not.
  std::string why() const;

 private:
  std::unique_ptr<ThreadGroups> groups_;
  ThreadGroup* world_group_ = nullptr;
};

}  // namespace trifold
