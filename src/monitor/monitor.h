// Monitor passes the records of a run to everything that the options of logging ask for: the JSON log,
// TensorBoard's event files and the page of metrics.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "config/fields/config.h"
#include "monitor/record.h"

namespace trifold {

class Monitor {
 public:
  // Without sinks: records are dropped.
  Monitor() = default;
  // Opens the sinks. For the process of the first rank alone. BadInput if a file cannot be written or
  // a port cannot be opened.
  explicit Monitor(const LogConfig& log);

  // Whether a record would be written; if not, it need not be made.
  bool listens() const { return !sinks_.empty(); }
  // The address of the metrics page; empty: there is none.
  const std::string& metrics_url() const { return metrics_url_; }
  // Throws Error if a sink fails.
  void write(const RunRecord& record) {
    for (const auto& sink : sinks_) sink->write(record);
  }

 private:
  std::vector<std::unique_ptr<RecordSink>> sinks_;
  std::string metrics_url_;
};

}  // namespace trifold
