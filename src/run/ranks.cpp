#include "run/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "checkpoint/collective.h"
#include "comm/call.h"
#include "comm/cuda_module.h"
#include "comm/rank_report.h"
#include "comm/thread_comm.h"
#include "core/wait_clock.h"
#include "run/device.h"
#include "run/flight/flight_run.h"
#include "run/nodes.h"
#include "run/terms.h"

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

// Keeps the first error of any rank; the other ranks are aborted and fail because of it, and their errors may arrive
// first.
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
      if (error.kind() == ErrorKind::Failure && dynamic_cast<SharedError*>(&error) == nullptr)
        error.add_context(fmt::format("rank {}", rank));
      error_ = std::current_exception();
    } catch (...) {
      error_ = std::current_exception();
    }
    world.abort(fmt::format("rank {} failed", rank));
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }
  std::string text() {
    const std::lock_guard lock(mutex_);
    try {
      rethrow();
    } catch (const std::exception& error) {
      return error.what();
    } catch (...) {
    }
    return "a rank failed";
  }

 private:
  std::mutex mutex_;
  std::exception_ptr error_;
  bool is_consequence_ = false;
};

// Runs a rank, after all ranks have determined which of them share a node.
void start_rank(Communicator& world, const MeshConfig& config, FlightRun& flight,
                FunctionRef<void(Communicator&)> rank_main) {
  const std::shared_ptr<FlightRecorder> recorder = flight.start(world, config.flight_dir);
  const FlightRecorder::Here here(*recorder);
  world.set_nodes(nodes_of_ranks(world, config.ranks_per_node));
  try {
    rank_main(world);
  } catch (...) {
    recorder->finish(FlightLog::End::Failed);
    throw;
  }
  recorder->finish(FlightLog::End::Finished);
}

// Waits for threads that report when they are done.
class Finish {
 public:
  void one_is_done() {
    {
      const std::lock_guard lock(mutex_);
      ++done_;
    }
    changed_.notify_all();
  }
  // Waits for this time, or until all `count` are done; returns the number that are done.
  int wait(int count, std::chrono::milliseconds time) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, time, [&] { return done_ == count; });
    return done_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int done_ = 0;
};

// Time for threads to end after one of them timed out waiting for another.
constexpr std::chrono::seconds kUnwinding{2};

// Returns when `count` threads are done, or reports the reason and ends the process: a hanging thread cannot be joined,
// and nothing it uses can be freed. Once the world is aborted or a thread is done, the others have a time-out, which
// restarts whenever a thread ends.
void wait_or_end(Finish& finish, int count, const ThreadWorld& world, std::chrono::milliseconds timeout,
                 FirstError& first, LastWords last_words) {
  std::optional<WaitClock> clock;
  bool ending = false;  // the clock runs since an abort
  std::chrono::milliseconds look(100);
  for (int done = 0, before = 0; (done = finish.wait(count, look)) < count; before = done) {
    const bool aborted = world.aborted();
    if (done == 0 && !aborted) continue;
    if (!clock || done != before || aborted != ending) {
      ending = aborted;
      clock.emplace(world.timed_out() ? std::min<std::chrono::milliseconds>(kUnwinding, timeout) : timeout);
      look = std::min(look, clock->poll());
    }
    if (!clock->expired()) continue;
    std::string why = world.timed_out() ? world.why() : "";
    if (aborted && why.empty()) why = first.text() + "\n";
    if (!world.timed_out())
      why += fmt::format("not all ranks have ended {} after the others:\n{}", to_string(timeout),
                         world.status());
    last_words(why.c_str());
    _exit(1);
  }
}

// The text that all ranks throw if the checks of some failed; `texts` is indexed by rank, empty on success.
std::string problems_text(const std::vector<std::string>& texts, const std::vector<std::string>& places) {
  const auto same = [&](const std::string& text) { return text == texts.front(); };
  if (std::all_of(texts.begin(), texts.end(), same)) return texts.front();
  std::string all;
  for (size_t rank = 0; rank < texts.size(); ++rank)
    if (!texts[rank].empty())
      all += fmt::format("{}rank {} ({}): {}", all.empty() ? "" : "\n", rank, places[rank], texts[rank]);
  return all;
}

}  // namespace

void abort_on_error(Communicator& world, FunctionRef<void()> work) {
  try {
    work();
  } catch (const Error& error) {
    if (!is_shared_by(error, world.size()))
      world.abort(fmt::format("rank {}: {}", world.rank(), error.what()));
    throw;
  } catch (const std::exception& error) {
    world.abort(fmt::format("rank {}: {}", world.rank(), error.what()));
    throw;
  }
}

std::chrono::milliseconds timeout_of(const MeshConfig& config) {
  return std::chrono::milliseconds(static_cast<int64_t>(config.distributed_timeout_minutes * 60'000));
}

Ranks::Ranks(std::chrono::milliseconds timeout, LastWords last_words, bool launched, Say say)
    : last_words_(last_words), say_(say) {
  if (launched && mpi_launch_size()) world_ = connect_mpi(timeout, last_words);
}

bool Ranks::has_first() const { return !world_ || world_->rank() == 0; }

void Ranks::agree(FunctionRef<void()> checks) {
  if (!world_) return checks();
  std::string problem;
  bool is_bad_input = true;
  try {
    checks();
  } catch (const Error& error) {
    problem = error.what();
    is_bad_input = error.kind() == ErrorKind::BadInput;
  } catch (const std::bad_alloc&) {
    problem = "out of memory";
    is_bad_input = false;
  } catch (const std::exception& error) {
    problem = error.what();
    is_bad_input = false;
  }
  // A text about a rank begins with the kind of error.
  std::vector<std::string> texts, places;
  abort_on_error(*world_, [&] {
    texts = gather_texts(*world_, "checking the start of the ranks", [&] {
      return problem.empty() ? std::string() : (is_bad_input ? "b" : "f") + problem;
    });
    if (std::all_of(texts.begin(), texts.end(), [](const std::string& text) { return text.empty(); })) return;
    places = gather_texts(*world_, "checking the start of the ranks", [] { return this_process(); });
  });
  if (places.empty()) return;
  ErrorKind kind = ErrorKind::BadInput;
  for (std::string& text : texts) {
    if (text.empty()) continue;
    if (text.front() == 'f') kind = ErrorKind::Failure;
    text.erase(0, 1);
  }
  throw SharedError(problems_text(texts, places), kind, world_->size(), world_->rank() == 0);
}

void Ranks::compare(const RunTerms& terms) {
  if (world_) abort_on_error(*world_, [&] { agree_on(*world_, terms); });
}

void Ranks::run(const MeshConfig& config, FunctionRef<void(Communicator&)> rank_main) {
  if (world_) return run_process(config, timeout_of(config), rank_main);
  run_threads(config, timeout_of(config), rank_main);
}

void Ranks::run_threads(const MeshConfig& config, std::chrono::milliseconds timeout,
                        FunctionRef<void(Communicator&)> rank_main) const {
  const int ranks = config.ranks;
  ThreadWorld world(ranks, timeout, ops_of_threads(config));
  FlightRun flight([&] { return world.status(); }, say_);
  FirstError first;
  Finish finish;
  std::vector<std::thread> threads;
  const auto run_rank = [&](int rank) {
    try {
      const std::unique_ptr<Communicator> comm = world.join(rank);
      start_rank(*comm, config, flight, rank_main);
    } catch (...) {
      first.take(rank, world);
    }
    finish.one_is_done();
  };
  int started = 0;
  try {
    for (; started < ranks; ++started) threads.emplace_back(run_rank, started);
  } catch (const std::system_error&) {
    world.abort("not all ranks could be started");
  }
  if (last_words_ != nullptr) wait_or_end(finish, started, world, timeout, first, last_words_);
  for (std::thread& thread : threads) thread.join();
  if (world.timed_out()) throw Error(world.why(), ErrorKind::Aborted);  // learnt by all ranks in some action
  check(started == ranks, "only {} of --ranks {} threads could be started on this machine", started, ranks);
  first.rethrow();
}

// Runs this process's single rank. An error must reach the other ranks, which would wait for it.
void Ranks::run_process(const MeshConfig& config, std::chrono::milliseconds timeout,
                        FunctionRef<void(Communicator&)> rank_main) {
  Communicator& world = *world_;
  FlightRun flight([&] { return world.status(); }, say_);
  try {
    if (config.device == ComputeDevice::Cuda) {
      world.set_nodes(nodes_of_ranks(world, config.ranks_per_node));
      const auto devices = connect_nccl(world, device_index(world), timeout);
      start_rank(*devices, config, flight, rank_main);
    } else {
      start_rank(world, config, flight, rank_main);
    }
  } catch (Error& error) {
    if (error.kind() == ErrorKind::Agreed && world.rank() != 0)
      throw Error(error.what(), ErrorKind::Aborted);  // the first rank reports it
    if (is_shared_by(error, world.size())) throw;
    if (error.kind() == ErrorKind::Failure) error.add_context(fmt::format("rank {}", world.rank()));
    world.abort(error.what());
    throw;
  } catch (...) {
    world.abort("an unexpected error");
    throw;
  }
}

void run_on_ranks(const MeshConfig& config, FunctionRef<void(Communicator&)> rank_main) {
  Ranks(timeout_of(config)).run(config, rank_main);
}

}  // namespace trifold
