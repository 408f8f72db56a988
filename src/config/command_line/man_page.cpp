#include "config/command_line/man_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>
#include <utility>

#include "config/command_line/command_info.h"
#include "config/command_line/command_line.h"
#include "config/command_line/help.h"
#include "config/command_line/parse.h"

namespace trifold {
namespace {

constexpr std::string_view kIntroduction = R"(.SH NAME
trifold \- train transformers and recommenders on a mesh of ranks
.SH SYNOPSIS
.B trifold
.I command
.RI [ options ]
.SH DESCRIPTION
.B trifold
trains transformers and recommenders with tensor, pipeline and data parallelism.
Ranks are threads of one process
.RB ( \-\-ranks )
or processes that an MPI launcher starts; the MPI and CUDA modules are loaded only when a run needs them.
)";

constexpr std::string_view kEnd = R"(.SH EXIT STATUS
.TP
.B 0
The command is done.
.TP
.B 1
A failure; the message names the rank and what it was doing.
.TP
.B 2
Bad input: an option, a file, or a mesh that does not fit.
.TP
.B 75
A signal stopped the run; it saved a checkpoint and can be restarted with the same command.
.SH ENVIRONMENT
.TP
.B TRIFOLD_MODULE_PATH
Folders, separated by colons, in which
.IR trifold_mpi.so ,
.I trifold_cuda.so
and
.I trifold_parquet.so
are looked for first.
.TP
.B TRIFOLD_CUDA_LIBRARY_PATH
Folders, separated by colons, in which the libraries of CUDA, cuDNN and NCCL are looked for first.
.SH FILES
Paths are relative to the folder that holds
.IR bin/trifold .
.TP
.I lib/trifold
The modules.
.TP
.I share/trifold/configs
Configurations of published models;
.B \-\-config
finds them by their name.
.TP
.I share/doc/trifold
The documentation.
)";

// Text escaped so that roff prints it unchanged. A long list of choices may be broken after each '|'.
std::string escaped(std::string_view text) {
  constexpr std::array<std::pair<char, std::string_view>, 7> kEscapes = {{{'\\', "\\e"},
                                                                          {'-', "\\-"},
                                                                          {'\'', "\\(aq"},
                                                                          {'`', "\\(ga"},
                                                                          {'^', "\\(ha"},
                                                                          {'~', "\\(ti"},
                                                                          {'|', "|\\:"}}};
  std::string result;
  if (text.starts_with('.')) result = "\\&";
  for (const char c : text) {
    const auto* escape =
        std::find_if(kEscapes.begin(), kEscapes.end(), [c](const auto& entry) { return entry.first == c; });
    if (escape != kEscapes.end())
      result += escape->second;
    else
      result += c;
  }
  return result;
}

std::string heading(std::string_view text) {
  std::string upper;
  for (const char c : text) upper += static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return fmt::format(".SH \"{}\"\n", escaped(upper));
}

std::string options_section(const OptionTable& table) {
  std::string text, group;
  for (const Option& option : table.options()) {
    if (option.group != group) text += fmt::format(".SS \"{}\"\n", escaped(group = option.group));
    const std::string value =
        option.argument.empty() ? "" : fmt::format(" \\fI{}\\fR", escaped(option.argument));
    text += fmt::format(".TP\n\\fB\\-\\-{}\\fR{}\n{}\n", escaped(option.name), value,
                        escaped(option_description(option)));
  }
  return text;
}

std::string command_section(const CommandInfo& command) {
  std::string text = heading(fmt::format("trifold {}", command.name));
  text += fmt::format(".B trifold {}\n{}\n.PP\n", escaped(command.name), escaped(command.usage));
  std::string summary(command.summary);
  summary[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(summary[0])));
  text += fmt::format("{}.\n.PP\n.EX\n", escaped(summary));
  for (const std::string_view example : command.examples) text += escaped(example) + "\n";
  text += ".EE\n";
  if (command.with_table != nullptr)
    with_default_table(command.name, [&](const OptionTable& table) { text += options_section(table); });
  return text;
}

}  // namespace

std::string man_page() {
  std::string text =
      fmt::format(".TH TRIFOLD 1 \"\" \"{}\" \"User Commands\"\n.ad l\n.nr HY 0\n{}.SH COMMANDS\n",
                  escaped(version_text()), kIntroduction);
  for (const CommandInfo& command : commands())
    text += fmt::format(".TP\n.B {}\n{}\n", escaped(command.name), escaped(command.summary));
  text += ".SH \"OPTIONS OF EVERY COMMAND\"\n" + options_section(common_options());
  for (const CommandInfo& command : commands()) text += command_section(command);
  return text.append(kEnd);
}

}  // namespace trifold
