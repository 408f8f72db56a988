#include "launch/process/rank_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <string_view>

#include "comm/mpi_module.h"
#include "comm/rank_report.h"
#include "core/printable.h"

namespace trifold::launch {

namespace {

constexpr std::string_view kMark = "# ranks that ended without a message of their own, earliest first\n";
constexpr char kEnded = 'e';

std::string g_file, g_rank;  // file and rank of the process's only watch, for last words

// Whether `file` begins as this program writes it. Files of other programs are left unchanged.
bool is_ours(int file) {
  std::array<char, kMark.size()> begin{};
  const ssize_t bytes = ::pread(file, begin.data(), begin.size(), 0);
  return bytes == 0 ||
         std::string_view(begin.data(), static_cast<size_t>(std::max<ssize_t>(bytes, 0))) == kMark;
}

std::string time_text() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  const std::time_t seconds = micros / 1'000'000;
  std::tm utc{};
  gmtime_r(&seconds, &utc);
  std::array<char, 40> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S", &utc);
  return fmt::format("{}.{:06} UTC", text.data(), micros % 1'000'000);
}

// Appends a line; the first rank that does creates the file. Each line is a single write, so that lines of several
// ranks do not mix.
void append(const std::string& path, const std::string& line) {
  const int made = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
  [[maybe_unused]] ssize_t written = 0;
  if (made >= 0) {
    written = ::write(made, kMark.data(), kMark.size());
    ::close(made);
  }
  const int file = ::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW);
  if (file < 0) return;
  if (is_ours(file)) written = ::write(file, line.data(), line.size());
  ::close(file);
}

// Waits for the rank to end, and reports it if the rank did not declare its end.
[[noreturn]] void watch(int from_rank, const std::string& file, const std::string& rank) {
  char last = 0;
  for (char byte = 0;;) {
    const ssize_t bytes = ::read(from_rank, &byte, 1);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    last = byte;
  }
  if (last != kEnded)
    append(file,
           fmt::format("{} {} ended without a message: it was killed, or it crashed\n", time_text(), rank));
  ::_exit(0);
}

// Runs in a separate session, without the rank's files: a launcher waits until those are closed, and signals its
// process groups.
void become_watch(int from_rank) {
  ::setsid();
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) std::signal(number, SIG_IGN);
  ::prctl(PR_SET_NAME, "trifold-watch");
  // It must write before processes that are woken a moment later: with priority, if permitted.
  const sched_param first{.sched_priority = 1};
  if (::sched_setscheduler(0, SCHED_FIFO, &first) != 0) ::setpriority(PRIO_PROCESS, 0, -20);
  if (::chdir("/") != 0) ::_exit(0);
  const int nothing = ::open("/dev/null", O_RDWR);
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing, stream);
  ::dup2(from_rank, 3);
  ::close_range(4, ~0U, 0);
}

}  // namespace

RankWatch::RankWatch(const std::optional<std::string>& log) {
  const std::optional<int> rank = mpi_launch_rank();
  std::array<int, 2> ends{};
  if (!log || !rank || mpi_launch_size().value_or(0) < 2 || ::pipe2(ends.data(), O_CLOEXEC) != 0) return;
  g_file = std::filesystem::absolute(*log).string() + ".dead";
  g_rank = fmt::format("rank {} ({})", *rank, this_process());
  const pid_t child = ::fork();
  if (child == 0) {
    if (::fork() != 0) ::_exit(0);  // the parent ends, so that nobody must wait for this process
    become_watch(ends[0]);
    watch(3, g_file, g_rank);
  }
  ::close(ends[0]);
  if (child < 0) {
    ::close(ends[1]);
    return;
  }
  ::waitpid(child, nullptr, 0);
  pipe_ = ends[1];
}

RankWatch::~RankWatch() {
  if (pipe_ < 0) return;
  [[maybe_unused]] const ssize_t written = ::write(pipe_, &kEnded, 1);
  ::close(pipe_);
}

void note_last_words(const char* why) {
  if (g_file.empty()) return;
  const std::string_view text = why;
  append(g_file, fmt::format("{} {} ended all ranks: {}\n", time_text(), g_rank,
                             printable(text.substr(0, text.find('\n')), 1000)));
}

}  // namespace trifold::launch
