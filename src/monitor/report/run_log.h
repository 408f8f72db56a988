// RunLog is the JSON log of a run (--log-json), read back: every number as a curve over the steps, and what happened.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace trifold {

struct CurvePoint {
  int64_t step = 0;
  double value = 0;
};
using Curve = std::vector<CurvePoint>;  // steps ascend

struct RunEvent {
  int64_t step = 0;
  std::string kind;       // "saved", "warning", ...
  nlohmann::json values;  // the other members of its line
};

struct RunLog {
  std::string path;
  // The last event "start", with the options of the run; null in logs of versions that had none.
  nlohmann::json start;
  // By the paths of for_each_number (monitor/record.h), without NaN. If a run wrote a step several times, because it was
  // resumed or returned to a checkpoint, the last time counts.
  std::map<std::string, Curve> curves;
  std::vector<RunEvent> events;  // in the order of the log, without "start"
  int64_t starts = 0;
  int64_t first_step = 0, last_step = 0;

  // The curve of the number with this path; empty if there is none.
  const Curve& curve(const std::string& number) const;
};

// `run` is a log, or a folder with exactly one. BadInput, naming file and line, for anything else. An incomplete last
// line, of a run that is still writing or was killed, is ignored; a log that has no other line is BadInput too, and the
// message says so.
RunLog read_run_log(const std::string& run);

}  // namespace trifold
