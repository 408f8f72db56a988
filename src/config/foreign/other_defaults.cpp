#include "config/foreign/other_defaults.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace trifold {
namespace {

struct OtherDefault {
  const char* program;
  const char* option;
  const char* value;   // the default of the program
  const char* beside;  // an option without which the default changes nothing; null: none
};

constexpr OtherDefault kOtherDefaults[] = {
    {"Megatron-LM", "hidden-dropout", "0.1", nullptr},
    {"Megatron-LM", "attention-dropout", "0.1", nullptr},
    {"Megatron-LM", "moe-router-load-balancing-type", "aux_loss", "moe-aux-loss-coeff"},
};

}  // namespace

std::optional<std::string> note_of_other_defaults(const std::string& program, const OptionTable& table,
                                                  const std::map<std::string, std::string>& origins) {
  if (origins.count("model") > 0) return std::nullopt;  // the model's file says all of this
  const auto is_given = [&](const char* name) { return origins.count(name) > 0; };
  std::vector<std::string> differences;
  for (const OtherDefault& other : kOtherDefaults) {
    const Option* option = table.find(other.option);
    const bool matters = other.beside == nullptr || is_given(other.beside);
    // A value that is not set is taken from a checkpoint.
    if (program != other.program || option == nullptr || !value_words(*option) || is_given(other.option) ||
        !matters)
      continue;
    differences.push_back(fmt::format("--{} {} (here {})", other.option, other.value, value_text(*option)));
  }
  if (differences.empty()) return std::nullopt;
  return fmt::format("{}'s defaults are other ones than those here: {}; give them to train as it does",
                     program, fmt::join(differences, ", "));
}

}  // namespace trifold
