// MetricsPage holds the newest numbers of a run in the text format of Prometheus (version 0.0.4): one gauge for each
// number, `trifold_loss 2.5`. The rest of a number's path is a label: `trifold_expert_loads{of="3"}`. A number that is null in its newest record is NaN. Further
// metrics:
//   trifold_step                            step of the newest record
//   trifold_last_record_timestamp_seconds   when it was written, in seconds since 1970: for alarms about a run that hangs
//   trifold_events_total{event="warning"}   number of events by kind
// Threads may read while another writes.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "monitor/record.h"

namespace trifold {

class MetricsPage {
 public:
  // `now`: seconds since 1970.
  void update(const RunRecord& record, double now);
  std::string text() const;

 private:
  struct Metric {
    const char* type = "gauge";
    std::map<std::string, double> values;  // by label in braces; "" without one
  };

  mutable std::mutex mutex_;
  std::map<std::string, Metric> metrics_;  // by name
};

}  // namespace trifold
