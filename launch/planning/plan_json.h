// The forecast of a run as JSON: the file that `trifold plan --json` writes.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "plan/records.h"
#include "plan/report.h"
#include "plan/zero_table.h"

namespace trifold::launch {

// The whole report, with `records` if there are any. Bytes and FLOP are per step, but in records per execution in a
// micro-batch; times are in seconds.
nlohmann::ordered_json to_json(const PlanReport& report, const ZeroTable& zero,
                               const std::vector<RecordedBlock>& records = {});

// The parts of a step's time in closed form, by name.
nlohmann::ordered_json parts_json(const StepTime& time);

// Whether every rank fits the memory of the hardware of the report's forecast, which must be present.
bool fits_hardware(const PlanReport& report);

}  // namespace trifold::launch
