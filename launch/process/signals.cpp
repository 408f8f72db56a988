#include "launch/process/signals.h"

#include <semaphore.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <string_view>
#include <thread>

#include "files/mapped_region.h"
#include "files/scratch_folder.h"
#include "launch/commands.h"
#include "run/flight/flight_run.h"

namespace trifold::launch {

namespace {

using Handler = void (*)(int);

constexpr std::array<int, 4> kStops = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
constexpr std::array<int, 8> kEnds = {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGQUIT, SIGPIPE, SIGXFSZ, SIGXCPU};

// A signal handler can access only globals.
std::atomic<int> g_signal{0};
std::array<Handler, kStops.size()> g_before{};  // the handlers of kStops before catch_signals()
std::atomic<int> g_end{0};
std::atomic<bool> g_interrupted{false};
sem_t g_ends;

void on_signal(int number) {
  g_signal.store(number);
  for (size_t i = 0; i < kStops.size(); ++i) std::signal(kStops[i], g_before[i]);
}

// A thread removes the files, because a handler may not.
void on_end(int number) {
  if (has_live_scratch()) {
    g_end.store(number);
    sem_post(&g_ends);
  } else {
    std::signal(number, SIG_DFL);
    std::raise(number);
  }
}

void on_interrupt(int) { g_interrupted.store(true); }

void on_quit(int) { status_requests().fetch_add(1); }

void wait_for_end() {
  while (sem_wait(&g_ends) != 0 && errno == EINTR) {
  }
  remove_live_scratch();
  const int number = g_end.load();
  std::signal(number, SIG_DFL);
  ::kill(::getpid(), number);
}

// Text in a fixed buffer, because a signal handler may not allocate memory.
class SignalText {
 public:
  SignalText& operator<<(std::string_view text) {
    for (const char c : text.substr(0, text_.size() - size_))
      text_[size_++] = c < ' ' && c >= 0 && c != '\n' ? '?' : c;
    return *this;
  }
  SignalText& operator<<(int64_t number) {
    std::array<char, 20> digits{};
    size_t begin = digits.size();
    do digits[--begin] = static_cast<char>('0' + number % 10);
    while ((number /= 10) > 0);
    return *this << std::string_view(&digits[begin], digits.size() - begin);
  }
  void print() const { [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text_.data(), size_); }

 private:
  std::array<char, 5000> text_{};
  size_t size_ = 0;
};

// Handles SIGBUS. For memory that maps no file of ours, the access is repeated with the default action, which ends the
// process.
void on_unreadable(int number, siginfo_t* info, void*) {
  const FileLocation location = mapped_location(info->si_addr);
  if (location.path == nullptr) return void(std::signal(number, SIG_DFL));
  struct stat now {};
  SignalText text;
  text << "trifold: " << location.path;
  if (::stat(location.path, &now) == 0 && S_ISREG(now.st_mode) && now.st_size < location.bytes)
    text << " was shortened while it was read: it had " << location.bytes << " bytes and has " << now.st_size
         << "; the files of a run must not change\n";
  else
    text << " cannot be read any more, from about byte " << location.offset
         << " on: its disk failed, or the file was changed\n";
  text.print();
  ::_exit(kFailed);
}

}  // namespace

void remove_scratch_on_signals() {
  has_live_scratch();  // its first call is not for handlers
  sem_init(&g_ends, 0, 0);
  std::thread(wait_for_end).detach();
  for (const int end : kEnds)
    if (std::signal(end, on_end) == SIG_IGN) std::signal(end, SIG_IGN);
}

void name_unreadable_files() {
  struct sigaction action {};
  action.sa_sigaction = on_unreadable;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

void interrupts_are_taken() { std::signal(SIGINT, on_interrupt); }

bool take_interrupt() { return g_interrupted.exchange(false); }

const std::atomic<int>& catch_signals() {
  for (size_t i = 0; i < kStops.size(); ++i) {
    const Handler before = std::signal(kStops[i], on_signal);
    // nohup: the run is meant to outlive its terminal.
    if (before == SIG_IGN && kStops[i] == SIGHUP) std::signal(SIGHUP, SIG_IGN);
    g_before[i] = before == SIG_IGN && kStops[i] != SIGHUP ? SIG_DFL : before;
  }
  for (const int ignored : {SIGXFSZ, SIGPIPE}) std::signal(ignored, SIG_IGN);
  std::signal(SIGQUIT, on_quit);  // although shells let commands that a script starts with & ignore it
  return g_signal;
}

}  // namespace trifold::launch
