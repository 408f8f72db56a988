// The commands of the program, in one table. A new one is
//   - a configuration in config.h, with the three functions of config/commands/commands.h and its name in Request,
//   - an entry in command_info.cpp,
//   - a run function (launch/commands.h).
// The command line, --help, completion and the tests of all commands read the table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/commands/commands.h"
#include "core/function_ref.h"

namespace trifold {

// The environment in which the command line is read.
struct Environment {
  int terminal_width = 80;  // columns, for --help
  int mpi_processes = 0;    // size of the MPI world when the program was started by mpirun; 0: it was not
};

// What the words after a command say in addition to its configuration.
struct Remarks {
  CommandFiles files;              // the files that they name
  std::vector<std::string> notes;  // "--save-interval 5 has no effect without --save DIR"
};

struct CommandInfo {
  std::string_view name;
  std::string_view summary;  // one line
  std::string_view usage;    // what follows "trifold NAME"
  std::vector<std::string_view> examples;
  // The command works on one text or one folder; several processes would overwrite each other's output.
  bool one_process = false;
  // The command `instead_of` with one of the options `when_given`, separated by spaces, means this command.
  std::string_view instead_of = {}, when_given = {};

  // Turns the words after the name into a request, and fills `remarks`. Throws Error(BadInput) that lists every mistake.
  Request (*read)(const CommandInfo& info, std::span<const std::string> words, const Environment& environment,
                  Remarks& remarks) = nullptr;
  // Calls `body` with the table of its options, bound to a configuration of defaults that lives during the
  // call; null for a command without options (completion, man-page).
  void (*with_table)(FunctionRef<void(const OptionTable&)> body) = nullptr;
};

const std::vector<CommandInfo>& commands();
// Throws Error if there is no such command.
const CommandInfo& command_info(std::string_view name);
// `with_table` of a command. Throws Error when it has no options or does not exist.
void with_default_table(std::string_view command, FunctionRef<void(const OptionTable&)> body);

}  // namespace trifold
