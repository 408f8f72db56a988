#include "train/ranks.h"

#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "comm/cuda_module.h"
#include "comm/mpi_module.h"
#include "comm/thread_comm.h"
#include "train/device.h"
#include "train/nodes.h"

namespace trifold {

namespace {

bool is_abort(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& held) {
    return held.kind() == ErrorKind::Aborted;
  } catch (...) {
    return false;
  }
}

// The first error that any rank met; the others are aborted and fail because of it. Their errors may come
// here before it does.
class FirstError {
 public:
  void take(int rank, ThreadWorld& world) {
    const std::lock_guard lock(mutex_);
    const bool aborted = is_abort(std::current_exception());
    if (error_ && (aborted || !is_consequence_)) return;
    is_consequence_ = aborted;
    try {
      throw;
    } catch (Error& error) {
      if (error.kind() == ErrorKind::Failure) error.add_context(fmt::format("rank {}", rank));
      error_ = std::current_exception();
    } catch (...) {
      error_ = std::current_exception();
    }
    world.abort(fmt::format("rank {} failed", rank));
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  bool is_consequence_ = false;
};

// The ranks begin by finding out which of them share a node.
void start_rank(Communicator& world, const MeshConfig& config, FunctionRef<void(Communicator&)> rank_main) {
  world.set_nodes(nodes_of_ranks(world, config.ranks_per_node));
  rank_main(world);
}

void run_threads(const MeshConfig& config, std::chrono::milliseconds timeout,
                 FunctionRef<void(Communicator&)> rank_main) {
  const int ranks = config.ranks;
  ThreadWorld world(ranks, timeout, ops_of_threads(config));
  FirstError first;
  std::vector<std::thread> threads;
  const auto run_rank = [&](int rank) {
    try {
      const std::unique_ptr<Communicator> comm = world.join(rank);
      start_rank(*comm, config, rank_main);
    } catch (...) {
      first.take(rank, world);
    }
  };
  int started = 0;
  try {
    for (; started < ranks; ++started) threads.emplace_back(run_rank, started);
  } catch (const std::system_error&) {
    world.abort("not all ranks could be started");
  }
  for (std::thread& thread : threads) thread.join();
  check(started == ranks, "only {} of --ranks {} threads could be started on this machine", started, ranks);
  first.rethrow();
}

// This process is one rank. Whatever goes wrong here is told to the others, who would wait for us.
void run_process(const MeshConfig& config, std::chrono::milliseconds timeout,
                 FunctionRef<void(Communicator&)> rank_main) {
  const std::unique_ptr<Communicator> world = connect_mpi(timeout);
  try {
    if (config.device == "cuda") {
      world->set_nodes(nodes_of_ranks(*world, config.ranks_per_node));
      const auto devices = connect_nccl(*world, device_index(*world), timeout);
      start_rank(*devices, config, rank_main);
    } else {
      start_rank(*world, config, rank_main);
    }
  } catch (Error& error) {
    if (error.kind() == ErrorKind::Agreed && world->rank() != 0)
      throw Error(error.what(), ErrorKind::Aborted);  // the first of them tells it
    if (error.kind() == ErrorKind::Agreed) throw;
    if (error.kind() == ErrorKind::Failure) error.add_context(fmt::format("rank {}", world->rank()));
    world->abort(error.what());
    throw;
  } catch (...) {
    world->abort("an unexpected error");
    throw;
  }
}

}  // namespace

void abort_on_error(Communicator& world, FunctionRef<void()> work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::Agreed)
      world.abort(fmt::format("rank {}: {}", world.rank(), error.what()));
    throw;
  } catch (const std::exception& error) {
    world.abort(fmt::format("rank {}: {}", world.rank(), error.what()));
    throw;
  }
}

void run_on_ranks(const MeshConfig& config, FunctionRef<void(Communicator&)> rank_main) {
  const std::chrono::milliseconds timeout(static_cast<int64_t>(config.distributed_timeout_minutes * 60'000));
  if (mpi_launch_size()) return run_process(config, timeout, rank_main);
  run_threads(config, timeout, rank_main);
}

}  // namespace trifold
