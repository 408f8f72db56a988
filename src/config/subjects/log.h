// Evaluations, reports and checks while a run trains.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "config/fields/config.h"
#include "config/options/option.h"

namespace trifold {

void add_eval(OptionTable& table, EvalConfig& eval);
// Early stopping by evaluations; starts no group.
void add_early_stop(OptionTable& table, std::optional<int64_t>& patience);
// Samples of a language model's text; starts no group.
void add_sample_prompt(OptionTable& table, EvalConfig& eval);
// How often and where any kind of run reports; add_log adds more.
void add_reports(OptionTable& table, LogConfig& log);
void add_log(OptionTable& table, LogConfig& log);
// Numbers of gradients and parameters, for models whose blocks have gradients in one buffer.
void add_model_numbers(OptionTable& table, LogConfig& log);
Option& add_seed(OptionTable& table, uint64_t& seed, std::string help);

}  // namespace trifold
