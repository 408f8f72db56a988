// The table of the program's commands. A new command is
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/commands/commands.h"
#include "core/function_ref.h"

namespace trifold {

// The model that the folder of --load describes in a file of options, such as Hugging Face's config.json.
struct FolderModel {
  ModelConfig model;   // resolved
  DataConfig data;     // only the tokenizer's fields are set
  std::string origin;  // the file: "model/config.json"
};

// The environment in which the command line is read.
struct Environment {
  int terminal_width = 80;  // columns, for --help
  int mpi_processes = 0;    // size of the MPI world if mpirun started the program; else 0
  // Reads the model of a folder; nullopt if the folder is of another kind. BadInput for a file with mistakes.
  std::function<std::optional<FolderModel>(const std::string& folder)> model_of_folder = {};
};

// Results of reading a command's words, besides its configuration.
struct Remarks {
  CommandFiles files;              // files that the words name
  std::vector<std::string> notes;  // "--save-interval 5 has no effect without --save DIR"
  // For messages (given_names.h): "tokenizer-model" -> "--vocab-file". Also there if the words have mistakes.
  std::map<std::string, std::string> given_as;
};

struct CommandInfo {
  std::string_view name;
  std::string_view summary;  // one line
  std::string_view usage;    // the text after "trifold NAME"
  std::vector<std::string_view> examples;
  // Whether the command runs as a single process; several would overwrite each other's output.
  bool one_process = false;
  // The user types the command `instead_of` with one of the options `when_given` (separated by blanks) to get this
  // command.
  std::string_view instead_of = {}, when_given = {};

  // Reads the words after the name into a request and fills `remarks`. Throws Error(BadInput) that lists every mistake.
  Request (*read)(const CommandInfo& info, std::span<const std::string> words, const Environment& environment,
                  Remarks& remarks) = nullptr;
  // Calls `body` with the table of the command's options, bound to a configuration of defaults that lives during the
  // call; null for a command without options (completion, man-page).
  void (*with_table)(FunctionRef<void(const OptionTable&)> body) = nullptr;
};

const std::vector<CommandInfo>& commands();
// Throws Error if there is no such command.
const CommandInfo& command_info(std::string_view name);
// `with_table` of a command. Throws Error when it has no options or does not exist.
void with_default_table(std::string_view command, FunctionRef<void(const OptionTable&)> body);

}  // namespace trifold
