// The records of runs of language models.
#pragma once

#include <string>

#include "monitor/record.h"
#include "run/metrics.h"

namespace trifold {

// Why a step left the model as it was, in words.
const char* reason_of(StepSkip skip);

RunRecord record_of(const StepReport& report);
// `part` names the data: "valid" gives the key valid_loss. The record includes the count over which the loss is the
// mean, usually "tokens"; with the size of the text it gives bits per byte.
RunRecord record_of(const EvalReport& report, const std::string& part = "valid");
RunRecord record_of(int64_t step, const Scores& scores);

// The event "start". `command` and `options` say what runs, options by name with underscores; options that are not set
// are left out, and of a list of more than 100 words the first 100 and their number are kept.
RunRecord record_of_start(const StartReport& report, const std::string& command,
                          const nlohmann::json& options);

}  // namespace trifold
