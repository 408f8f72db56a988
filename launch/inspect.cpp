#include "checkpoint/inspect.h"

#include <fmt/core.h>

#include "checkpoint/reader.h"
#include "config/commands/json.h"
#include "core/printable.h"
#include "launch/commands.h"

namespace trifold::launch {

int run(const InspectConfig& config) {
  CheckpointReader checkpoint(config.directory);
  if (!config.diff) fmt::print("{}", printable_message(describe(checkpoint, to_json(ModelConfig{}))));
  bool sound = true;
  if (config.verify) {
    const VerifyReport report = checkpoint.verify();
    fmt::print("{}{}", config.diff ? "" : "\n", printable_message(to_text(report)));
    sound = report.ok();
  }
  if (config.diff) {
    CheckpointReader other(*config.diff);
    fmt::print("{}", printable_message(to_text(difference(checkpoint, other))));
  }
  return sound ? kDone : kFailed;
}

}  // namespace trifold::launch
