#include "monitor/report/page.h"

#include <fmt/format.h>

#include "config/options/file_use.h"
#include "core/printable.h"
#include "files/output_files.h"
#include "launch/commands.h"
#include "launch/say.h"
#include "monitor/perfetto_trace.h"
#include "monitor/report/planned_step.h"

namespace trifold::launch {

namespace {

// What the ranks did, and, if the first run can be planned here, what its plan expects.
std::string trace_of(const RunLog& log, const std::string& flight) {
  const FlightFiles files = read_flight_files(flight);
  std::vector<TraceTrack> tracks = measured_tracks(files);
  const Planned planned = planned_step(log);
  if (planned.picture) {
    std::vector<TraceTrack> more = planned_tracks(planned.picture->timeline.simulation, files);
    std::move(more.begin(), more.end(), std::back_inserter(tracks));
  } else {
    say(stderr, fmt::format("note: --trace: the planned step is missing, because {}\n",
                            printable_message(planned.reason)));
  }
  return perfetto_trace(tracks);
}

}  // namespace

int run(const ReportConfig& config) {
  check_writable_file("--output", config.output);
  if (config.trace) check_writable_file("--trace", *config.trace);
  std::vector<RunLog> logs;
  for (const std::string& run : config.runs) logs.push_back(read_run_log(run));
  const std::string trace = config.trace ? trace_of(logs.front(), *config.flight) : "";
  write_file("--output", config.output, marked_html(report_page(logs), "report"));
  if (config.trace) write_file("--trace", *config.trace, trace);
  return kDone;
}

}  // namespace trifold::launch
