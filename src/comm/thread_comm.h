// ThreadWorld: a world whose ranks are threads of one process. It makes a Communicator for each of them.
//
// In a collective each rank publishes its call and addresses and waits for the others; then calls are
// compared, data moves directly between the ranks' tensors (each rank reduces its own part, in rank order),
// and the ranks wait for each other again. Nothing is staged, so all_reduce reads and writes every element
// once per rank. Sums are the same on all ranks and in rank order: ((x0 + x1) + x2) + ...
//
// After a time-out or an abort a rank returns only when no other rank can access its tensors any more, so its
// memory may be freed at once. From then on every call on every communicator of the world fails.
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
  // Reductions on streams of a device use `ops`, which must outlive the world; reductions on host streams use
  // cpu_ops().
  explicit ThreadWorld(int size, std::chrono::milliseconds timeout = kDefaultCommTimeout);
  ThreadWorld(int size, std::chrono::milliseconds timeout, const OpTable& ops);
  ~ThreadWorld();
  ThreadWorld(const ThreadWorld&) = delete;
  ThreadWorld& operator=(const ThreadWorld&) = delete;

  int size() const;

  // The world communicator of rank `rank`. Must be called once for each rank, from the thread that will run
  // it. The communicator, and everything split from it, must not outlive the world.
  std::unique_ptr<Communicator> join(int rank);

  // As Communicator::abort, for a thread that is not a rank.
  void abort(std::string_view why) noexcept;

  // One line per rank with its waits, stragglers first, to diagnose a hanging run. May be called from any thread.
  std::string status() const;
  // Whether the world has been aborted, and whether a time-out was the reason. May be called from any thread.
  bool aborted() const;
  bool timed_out() const;
  // The reason of the abort; empty if there was none.
  std::string why() const;

 private:
  std::unique_ptr<ThreadGroups> groups_;
  ThreadGroup* world_group_ = nullptr;
};

}  // namespace trifold
