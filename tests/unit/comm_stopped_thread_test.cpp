// Threads of ranks that are stopped within a wait: the others say which rank hangs, and in what.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <csignal>
#include <functional>
#include <mutex>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "comm/thread_comm.h"
#include "core/error.h"
#include "support/ranks.h"

namespace trifold::test {
namespace {

using std::chrono::milliseconds;

// A thread that stands still wherever it is when it gets a signal.
class StandingStill {
 public:
  StandingStill() {
    still_ = false;
    go_on_ = false;
    struct sigaction action {};
    action.sa_handler = [](int) {
      still_ = true;
      while (!go_on_) std::this_thread::sleep_for(milliseconds(1));
    };
    sigaction(SIGUSR2, &action, &before_);
  }
  ~StandingStill() { sigaction(SIGUSR2, &before_, nullptr); }
  StandingStill(const StandingStill&) = delete;
  StandingStill& operator=(const StandingStill&) = delete;

  void stop(pthread_t thread) {
    pthread_kill(thread, SIGUSR2);
    while (!still_) std::this_thread::sleep_for(milliseconds(1));
  }
  void go_on() { go_on_ = true; }

 private:
  static inline std::atomic<bool> still_, go_on_;
  struct sigaction before_ {};
};

// Four ranks; the thread of rank 3 is stopped while it waits in `first`, before the others begin `second`. Returns what
// the others report, or nothing if they report nothing. The thread goes on after that: glibc's condition variables block
// threads that wake others while one of the woken does not run, and a test, other than the program, waits for all its
// threads.
std::string beside_a_stopped_thread_once(milliseconds timeout,
                                         const std::function<void(Communicator&)>& first,
                                         const std::function<void(Communicator&)>& second) {
  StandingStill still;
  std::atomic<bool> waits{false}, stopped{false};
  pthread_t thread{};
  std::mutex mutex;
  std::string text;
  const auto rank_main = [&](Communicator& comm) {
    if (comm.rank() == 3) {
      thread = pthread_self();
      waits = true;
      return first(comm);
    }
    while (!(comm.rank() == 0 ? waits : stopped)) std::this_thread::sleep_for(milliseconds(1));
    if (comm.rank() == 0) {
      std::this_thread::sleep_for(milliseconds(110));  // not when rank 3 reads its clock, every 25 or 75 ms
      still.stop(thread);
      stopped = true;
    }
    try {
      second(comm);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex);
      text = error.what();
      throw;
    }
  };
  std::thread later([&] {
    while (!stopped) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(timeout + milliseconds(500));
    still.go_on();
  });
  try {
    run_ranks(4, rank_main, {.timeout = timeout});
  } catch (const Error&) {
  }
  later.join();
  return text;
}

// A thread that is stopped just when it holds the mutex of its wait stops the others too, so that nobody reports
// anything. No test can choose the moment; it tries again.
std::string beside_a_stopped_thread(milliseconds timeout, const std::function<void(Communicator&)>& first,
                                    const std::function<void(Communicator&)>& second) {
  std::string text;
  for (int attempt = 0; attempt < 5 && text.empty(); ++attempt)
    text = beside_a_stopped_thread_once(timeout, first, second);
  return text;
}

void expect_hanging(const std::string& text, const std::string& where) {
  EXPECT_TRUE(std::regex_search(text, std::regex("^rank 3 \\(host [^)]*\\) hangs: its thread has not run for "
                                                 "\\d+\\.\\d s, in " +
                                                 where)))
      << text;
  EXPECT_EQ(text.find("ranks  "), std::string::npos) << text;
}

TEST(ThreadWorld, ARankThatHangsInAWaitThatIsOverIsNamed) {
  const auto barrier = [](Communicator& comm) { comm.barrier(); };
  expect_hanging(beside_a_stopped_thread(milliseconds(500), barrier, barrier),
                 "barrier, call 0 in the world of 4 ranks, where all ranks have come. Rank [012] gave up");
}

TEST(ThreadWorld, ARankThatHangsInAnExchangeThatIsOverIsNamed) {
  const auto exchange = [](Communicator& comm) {
    OwnStream stream;
    float number = 0;
    const Tensor tensor{&number, DType::F32, {1}};
    if (comm.rank() == 3)
      comm.exchange(std::vector<Transfer>{{Transfer::Direction::Receive, 0, tensor}}, stream);
    else if (comm.rank() == 0)
      comm.exchange(std::vector<Transfer>{{Transfer::Direction::Send, 3, tensor}}, stream);
    else
      comm.barrier();
  };
  expect_hanging(beside_a_stopped_thread(milliseconds(500), exchange, exchange),
                 "exchange in the world of 4 ranks, for rank 0 to send 1 f32. Rank [012] gave up");
}

// Its thread hangs in a wait for one of its streams, which is idle; another stream waits for a rank.
TEST(ThreadWorld, ARankThatHangsInAWaitForItsStreamIsNamed) {
  const auto first = [](Communicator& comm) {
    OwnStream idle(Stream::Mode::Worker);
    OwnStream busy(Stream::Mode::Worker);
    float number = 0;
    const Tensor tensor{&number, DType::F32, {1}};
    comm.exchange(std::vector<Transfer>{{Transfer::Direction::Receive, 2, tensor}}, busy);
    idle.get().run([] { std::this_thread::sleep_for(milliseconds(300)); });
    idle.get().synchronize();
    busy.get().synchronize();
  };
  expect_hanging(
      beside_a_stopped_thread(milliseconds(1500), first, [](Communicator& comm) { comm.barrier(); }),
      "a wait for its own work, and waits \\d+\\.\\d s in exchange in the world of 4 ranks, for rank 2 to send");
}

}  // namespace
}  // namespace trifold::test
