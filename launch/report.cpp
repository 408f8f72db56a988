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
  const Planned planned = planned_step(log.start);
  if (!planned.picture)
    say(stderr, fmt::format("note: --trace: the planned step is missing, because {}\n",
                            printable_message(planned.reason)));
  return perfetto_trace(all_tracks(read_flight_files(flight), planned));
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
