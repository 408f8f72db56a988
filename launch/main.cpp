// `trifold`: reads the command line and runs one command. Text that was asked for goes to stdout, progress
// and errors go to stderr.
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <new>
#include <variant>

#include "comm/mpi_module.h"
#include "config/command_line.h"
#include "core/error.h"
#include "core/printable.h"
#include "launch/commands.h"

namespace {

using namespace trifold;

int terminal_width() {
  winsize size{};
  if (isatty(STDOUT_FILENO) != 0 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40)
    return size.ws_col;
  return 80;
}

// These work on one text or one folder: several processes would do the same over each other.
void check_processes(const Request& request, int processes) {
  if (processes < 2) return;
  if (std::holds_alternative<GenerateConfig>(request) || std::holds_alternative<TokenizeConfig>(request) ||
      std::holds_alternative<PreprocessConfig>(request) || std::holds_alternative<InspectConfig>(request) ||
      std::holds_alternative<ReshardConfig>(request) || std::holds_alternative<ConvertConfig>(request) ||
      std::holds_alternative<PlanConfig>(request) || std::holds_alternative<PlanRecommenderConfig>(request))
    bad_input("this command runs as one process: start it without the MPI launcher");
}

int dispatch(int argc, char** argv) {
  const Surroundings surroundings{terminal_width(), mpi_launch_size().value_or(0)};
  const Request request = parse_command_line(argc, argv, surroundings);
  check_processes(request, surroundings.mpi_processes);
  if (const auto* text = std::get_if<TextRequest>(&request)) {
    fmt::print("{}", text->text);
    return launch::kDone;
  }
  return std::visit(
      [](const auto& command) {
        if constexpr (std::is_same_v<std::decay_t<decltype(command)>, TextRequest>)
          return launch::kDone;
        else
          return launch::run(command);
      },
      request);
}

// A message may quote what a file holds, which must not reach the terminal as it is.
void tell(const std::exception& error) {
  fmt::print(stderr, "trifold: {}\n", printable_message(error.what()));
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return dispatch(argc, argv);
  } catch (const Error& error) {
    // Of several processes, the one that failed tells why; the others end because of it.
    const bool told = error.kind() == ErrorKind::Aborted && mpi_launch_size().value_or(1) > 1;
    if (!told) tell(error);
    return error.kind() == ErrorKind::BadInput ? launch::kBadInput : launch::kFailed;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "trifold: out of memory\n");
  } catch (const std::exception& error) {
    tell(error);
  }
  return launch::kFailed;
}
