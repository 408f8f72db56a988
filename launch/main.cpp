// `trifold`: reads the command line and runs one command. Requested text goes to stdout, progress and errors go to
// stderr.
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <new>
#include <optional>
#include <thread>
#include <variant>

#include "comm/mpi_module.h"
#include "config/command_line/command_line.h"
#include "config/command_line/given_names.h"
#include "core/error.h"
#include "core/printable.h"
#include "launch/commands.h"
#include "launch/process/rank_watch.h"
#include "launch/process/signals.h"
#include "launch/say.h"
#include "models/adapters/peft_folder.h"
#include "models/folders/open_model.h"
#include "run/command_files.h"
#include "run/ranks.h"
#include "train/start/checkpoint_model.h"

namespace {

using namespace trifold;

int terminal_width() {
  winsize size{};
  if (isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
    return size.ws_col;
  return 80;
}

// Reopens standard streams that the parent process has closed (a daemon, say): otherwise the next opened file would get
// a stream's number, and printed text would end up in that file. The replacement of the standard output is not
// writable: lost text is a failure, as on a full disk.
void reserve_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(stream, F_GETFD) < 0 && errno == EBADF &&
        open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY) < 0)
      return;
}

// Flushes the output of a command that ended with `status` and returns its exit status; a failed write is a failure,
// because the output was the purpose.
int after_output(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
  launch::say(stderr,
              "trifold: standard output cannot be written: the disk may be full, "
              "or the reading process may have ended\n");
  return status == launch::kDone ? launch::kFailed : status;
}

// Escapes the message, which may quote a file's content.
void print_error(const std::exception& error, const Remarks& remarks) {
  launch::say(stderr, fmt::format("trifold: {}\n",
                                  printable_message(with_given_names(error.what(), remarks.given_as))));
}

// Whether another process reports the error: with several processes only the one that failed does.
bool is_reported_elsewhere(const Error& error) {
  if (mpi_launch_size().value_or(1) == 1) return false;
  const auto* shared = dynamic_cast<const SharedError*>(&error);
  return error.kind() == ErrorKind::Aborted || (shared != nullptr && !shared->reports());
}

// Called by the thread that finds a rank hanging. The job ends next, and a launcher then drops output that it has not
// forwarded.
void say_last_words(const char* why) {
  if (*why == 0) return;
  launch::note_last_words(why);
  launch::say(stderr, fmt::format("trifold: {}\n", printable_message(why)));
  if (mpi_launch_size()) std::this_thread::sleep_for(std::chrono::seconds(1));
}

// A command that runs on ranks.
template <class Command>
concept OnRanks = requires(const Command& command, Ranks& ranks) {
  launch::run(command, ranks);
};

template <class Command>
std::chrono::milliseconds timeout_for(const Command& command) {
  if constexpr (requires { command.mesh; })
    return timeout_of(command.mesh);
  else if constexpr (requires { command.run.mesh; })
    return timeout_of(command.run.mesh);
  else
    return kDefaultCommTimeout;
}

// The --log-json of a command that has one.
template <class Command>
std::optional<std::string> log_of(const Command& command) {
  if constexpr (requires { command.log.log_json; })
    return command.log.log_json;
  else if constexpr (requires { command.run.log.log_json; })
    return command.run.log.log_json;
  else if constexpr (requires { command.log_json; })
    return command.log_json;
  else
    return std::nullopt;
}

// Names the options that have no effect, before the command begins.
void print_notes(const std::vector<std::string>& notes) {
  for (const std::string& note : notes)
    launch::say(stderr, fmt::format("note: {}\n", printable_message(note)));
}

// Runs the request of the command line, or fails with `wrong`, the reason why it could not be read. All ranks of a
// launcher start before any of them may fail, because the others would wait for it.
int run_with_others(const Request& request, const Remarks& remarks, const std::exception_ptr& wrong,
                    int processes) {
  const bool on_ranks = std::visit([](const auto& c) { return OnRanks<std::decay_t<decltype(c)>>; }, request);
  const auto timeout = std::visit([](const auto& command) { return timeout_for(command); }, request);
  const launch::RankWatch watch(std::visit([](const auto& command) { return log_of(command); }, request));
  std::optional<Ranks> ranks;
  try {
    ranks.emplace(timeout, say_last_words, wrong ? processes > 1 : on_ranks, [](const std::string& text) {
      launch::say(stderr, "trifold: " + printable_message(text));
    });
  } catch (const Error&) {  // MPI is not available on any rank
    if (wrong) std::rethrow_exception(wrong);
    throw;
  }
  launch::name_unreadable_files();  // again: MPI's libraries may have set their own handlers
  ranks->agree([&] {
    if (wrong) std::rethrow_exception(wrong);
    check_command_files(remarks.files);
    remove_abandoned_scratch(remarks.files);
  });
  if (ranks->has_first()) print_notes(remarks.notes);
  return std::visit(
      [&](const auto& command) {
        using Command = std::decay_t<decltype(command)>;
        if constexpr (std::is_same_v<Command, TextRequest>)
          return launch::kDone;
        else if constexpr (OnRanks<Command>)
          return launch::run(command, *ranks);
        else
          return launch::run(command);
      },
      request);
}

// The model that a folder of Hugging Face's libraries describes; nullopt for other folders.
std::optional<FolderModel> model_of_folder(const std::string& folder) {
  const bool adapters = is_peft_folder(folder);
  if (!adapters && !is_hugging_face_folder(folder)) return std::nullopt;
  const CheckpointModel found = describe_checkpoint(open_model(folder));
  return FolderModel{found.model, found.data,
                     (std::filesystem::path(folder) / (adapters ? kPeftConfigName : "config.json")).string()};
}

int dispatch(int argc, char** argv, Remarks& remarks) {
  const Environment environment{terminal_width(), mpi_launch_size().value_or(0), model_of_folder};
  Request request;
  std::exception_ptr wrong;
  try {
    request = parse_command_line(argc, argv, environment, &remarks);
  } catch (...) {
    wrong = std::current_exception();
  }
  if (const auto* text = std::get_if<TextRequest>(&request); text != nullptr && !wrong) {
    print_notes(remarks.notes);
    fmt::print("{}", text->text);
    return launch::kDone;
  }
  return run_with_others(request, remarks, wrong, environment.mpi_processes);
}

}  // namespace

int main(int argc, char** argv) {
  reserve_standard_streams();
  launch::remove_scratch_on_signals();
  launch::name_unreadable_files();
  Remarks remarks;
  try {
    return after_output(dispatch(argc, argv, remarks));
  } catch (const Error& error) {
    if (!is_reported_elsewhere(error)) print_error(error, remarks);
    return error.kind() == ErrorKind::BadInput ? launch::kBadInput : launch::kFailed;
  } catch (const std::bad_alloc&) {
    launch::say(stderr, "trifold: out of memory\n");
  } catch (const std::exception& error) {
    if (std::ferror(stdout) != 0)
      return after_output(launch::kFailed);  // fmt does not say which stream it is
    print_error(error, remarks);
  }
  return launch::kFailed;
}
