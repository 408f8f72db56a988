#include "config/command_line/completion.h"

#include <fmt/format.h>

#include "config/command_line/command_info.h"
#include "config/command_line/parse.h"

namespace trifold {
namespace {

constexpr std::string_view kHead =
    R"(# Completion of trifold for bash. Load it with: source <(trifold completion bash)
_trifold() {
  local cur="${COMP_WORDS[COMP_CWORD]}" prev="" command="${COMP_WORDS[1]}" options=""
  (( COMP_CWORD > 0 )) && prev="${COMP_WORDS[COMP_CWORD-1]}"
  # bash hands over --name=value as three words
  if [[ $cur == "=" ]]; then cur=""
  elif [[ $prev == "=" ]]; then prev="${COMP_WORDS[COMP_CWORD-2]}"; fi
  COMPREPLY=()
  if (( COMP_CWORD == 1 )); then
)";

constexpr std::string_view kTail = R"(  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$cur"))
  elif [[ -z $cur && $prev == --* ]]; then
    COMPREPLY=($(compgen -W "$options" -- ""))
  else
    _trifold_files
  fi
}
_trifold_files() {
  local IFS=$'\n'
  COMPREPLY=($(compgen -f -- "$cur"))
  compopt -o filenames 2>/dev/null
}
complete -F _trifold trifold
)";

// "pretrain --tp"|"pretrain --tensor-model-parallel-size"
std::string pattern(std::string_view command, const Option& option) {
  std::string text = fmt::format("\"{} --{}\"", command, option.name);
  for (const std::string& alias : option.aliases) text += fmt::format("|\"{} --{}\"", command, alias);
  return text;
}

// The case of an option that takes a value: the values to offer.
std::string value_case(std::string_view command, const Option& option) {
  if (is_flag(option)) return "";
  std::string action = "return";  // a number or free text: nothing to offer
  if (option.use != FileUse::None) action = "_trifold_files; return";
  if (!option.suggested.empty())
    action = fmt::format("COMPREPLY=($(compgen -W \"{}\" -- \"$cur\") $(compgen -f -- \"$cur\")); return",
                         fmt::join(option.suggested, " "));
  if (!option.allowed.empty())
    action =
        fmt::format("COMPREPLY=($(compgen -W \"{}\" -- \"$cur\")); return", fmt::join(option.allowed, " "));
  return fmt::format("    {}) {} ;;\n", pattern(command, option), action);
}

}  // namespace

std::string bash_completion() {
  std::string names, values, options;
  for (const CommandInfo& command : commands()) {
    names += fmt::format("{} ", command.name);
    if (command.with_table == nullptr) continue;
    std::string list;
    with_default_table(command.name, [&](const OptionTable& table) {
      for (const OptionTable* part : {&table, &common_options()})
        for (const Option& option : part->options()) {
          values += value_case(command.name, option);
          list += fmt::format("--{} ", option.name);
          for (const std::string& alias : option.aliases) list += fmt::format("--{} ", alias);
        }
    });
    options += fmt::format("    {}) options=\"{}\" ;;\n", command.name, list);
  }
  return fmt::format(
      "{}    COMPREPLY=($(compgen -W \"{}--help --version\" -- \"$cur\"))\n    return\n  fi\n"
      "  case \"$command ${{prev//_/-}}\" in\n{}    \"completion completion\") COMPREPLY=(bash); return ;;\n "
      " esac\n"
      "  case \"$command\" in\n{}    *) return ;;\n{}",
      kHead, names, values, options, kTail);
}

}  // namespace trifold
