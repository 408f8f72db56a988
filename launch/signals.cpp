#include "launch/signals.h"

#include <semaphore.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <thread>

#include "files/scratch_folder.h"

namespace trifold::launch {

namespace {

using Handler = void (*)(int);

constexpr std::array<int, 4> kStops = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
constexpr std::array<int, 8> kEnds = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGQUIT, SIGPIPE, SIGXFSZ, SIGXCPU};

// A signal handler can reach nothing but globals.
std::atomic<int> g_signal{0};
std::array<Handler, kStops.size()> g_before{};  // the handlers of kStops before catch_signals()
std::atomic<int> g_end{0};
sem_t g_ends;

void on_signal(int number) {
  g_signal.store(number);
  for (size_t i = 0; i < kStops.size(); ++i) std::signal(kStops[i], g_before[i]);
}

// Files can be removed by a thread, not by a handler.
void on_end(int number) {
  if (has_live_scratch()) {
    g_end.store(number);
    sem_post(&g_ends);
  } else {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
}

void wait_for_end() {
  while (sem_wait(&g_ends) != 0 && errno == EINTR) {
  }
  remove_live_scratch();
  const int number = g_end.load();
  std::signal(number, SIG_DFL);
  ::kill(::getpid(), number);
}

}  // namespace

void remove_scratch_on_signals() {
  has_live_scratch();  // its first call is not for handlers
  sem_init(&g_ends, 0, 0);
  std::thread(wait_for_end).detach();
  for (const int end : kEnds)
    if (std::signal(end, on_end) == SIG_IGN) std::signal(end, SIG_IGN);
}

const std::atomic<int>& catch_signals() {
  for (size_t i = 0; i < kStops.size(); ++i) {
    const Handler before = std::signal(kStops[i], on_signal);
    // nohup: the run is meant to outlive its terminal.
    if (before == SIG_IGN && kStops[i] == SIGHUP) std::signal(SIGHUP, SIG_IGN);
    g_before[i] = before == SIG_IGN && kStops[i] != SIGHUP ? SIG_DFL : before;
  }
  for (const int ignored : {SIGXFSZ, SIGPIPE}) std::signal(ignored, SIG_IGN);
  return g_signal;
}

}  // namespace trifold::launch
