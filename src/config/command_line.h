// The whole command line: from argc and argv to what the program is to do.
#pragma once

#include <span>
#include <string>
#include <variant>

#include "config/config.h"

namespace trifold {

// A request that is answered by printing this text on standard output: --help, --version, --print-config,
// completion.
struct TextRequest {
  std::string text;
};

// A command with its configuration, checked and resolved (see validate.h), or a text to print.
using Request = std::variant<TextRequest, PretrainConfig, FinetuneConfig, GenerateConfig, EvaluateConfig,
                             InspectConfig, ReshardConfig, ConvertConfig, BenchConfig, PlanConfig,
                             TokenizeConfig, PreprocessConfig, RecommendConfig, PlanRecommenderConfig>;

// What the command line is read in.
struct Surroundings {
  int terminal_width = 80;  // columns, for --help
  int mpi_processes = 0;    // size of the MPI world when the program was started by mpirun; 0: it was not
};

// Reads `arguments` as main gets them, argv[0] included. Under MPI the number of processes becomes `ranks`,
// and a
// --ranks that says otherwise is a problem. Throws Error(BadInput) that lists everything that is wrong.
Request parse_command_line(std::span<const std::string> arguments, const Surroundings& surroundings = {});
Request parse_command_line(int argc, const char* const* argv, const Surroundings& surroundings = {});

// "trifold 0.1.0"
std::string version_text();

}  // namespace trifold
