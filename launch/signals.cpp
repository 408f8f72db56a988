#include "launch/signals.h"

#include <array>
#include <csignal>

namespace trifold::launch {

namespace {

constexpr std::array<int, 4> kStops = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};

std::atomic<int> g_signal{0};  // a signal handler can reach nothing but a global

void on_signal(int number) {
  g_signal.store(number);
  for (const int stop : kStops) std::signal(stop, SIG_DFL);
}

}  // namespace

const std::atomic<int>& catch_signals() {
  for (const int stop : kStops) {
    // nohup: the run is meant to outlive its terminal.
    if (std::signal(stop, on_signal) == SIG_IGN && stop == SIGHUP) std::signal(stop, SIG_IGN);
  }
  for (const int ignored : {SIGXFSZ, SIGPIPE}) std::signal(ignored, SIG_IGN);
  return g_signal;
}

}  // namespace trifold::launch
