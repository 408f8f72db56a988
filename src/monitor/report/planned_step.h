// The planned step of a run that a log describes, to be compared with the measured one.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "plan/pictures/step_svg.h"

namespace trifold {

struct PlannedPicture {
  double step_seconds = 0;
  size_t most_bytes = 0;  // on the rank that needs most
  Timeline timeline;
};

// The planned step of a run, or why there is none.
struct Planned {
  std::optional<PlannedPicture> picture;
  std::string reason;
};

// Plans the step from the options in the start of a log (RunLog::start, record_of_start): of a language model for the
// rate of matrix products that the run measured, of a recommender for the usual rates (`trifold plan`). Files that the
// model or its data come from are read again; the start may have no options, or options that cannot be planned here.
Planned planned_step(const nlohmann::json& start);

}  // namespace trifold
